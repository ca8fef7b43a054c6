"""pageable-or-allocating: copies go through memory that is not page-locked, or memory is allocated while serving.

Symptom: slow copies. The server counts both by itself, and any one of them is a fault (Nsight Systems' rule for
asynchronous copies of pageable memory; taxonomy class 6). Slow copies that it did not count, below half of pinned
memory's speed (probe P2), stay unverified: another process may share the bus.
"""

from __future__ import annotations

from service.diagnosis.copies import CopyTimes, copy_times
from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    Missing,
    Verdict,
    percent,
    refuted,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import at_most, latency_gain
from service.diagnosis.misconceptions import COMPUTE_IS_NOT_LATENCY
from service.diagnosis.observed import batch_count, is_on_gpu
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import DeviceFigures
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.PAGEABLE_OR_ALLOCATING
SLOW = 0.5


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether copies or allocations cost what pinned memory made beforehand would not."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: nothing is copied to a device")
    device, copies = snapshot.device, copy_times(snapshot)
    if device is None or device.pageable_copies is None or device.hot_allocations is None:
        return unrecorded(KIND, "pageable copies, and allocations while serving")
    speed = copies.pinned_ratio if copies else None
    evidence = (
        Evidence("pageable copies", float(device.pageable_copies), "copies", 0.0),
        Evidence("allocations while serving", float(device.hot_allocations), "allocations", 0.0),
        *(() if speed is None else (Evidence("speed over pinned memory's", speed, "ratio", SLOW),)),
    )
    if not device.pageable_copies and not device.hot_allocations:
        if speed is None or speed >= SLOW:
            return refuted(KIND, "no copy was pageable, and nothing was allocated", *evidence)
        return unverified(
            KIND,
            f"copies run at {percent(speed)} of pinned memory's speed, but none was counted as pageable",
            *evidence,
            missing=(Missing("who else uses the bus", "CUPTI, or nsys profile --trace=cuda"),),
        )
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{device.pageable_copies} copies were pageable and memory was allocated {device.hot_allocations} "
        "times while serving",
        evidence=evidence,
        gain=_gain(snapshot, device, copies),
        fix=Fix(
            "let every copy go from memory that was page-locked at start-up: fewer queued bytes than the pool holds, "
            "and no buffers that grow",
            card="[batching]\nmax_queued_bytes = 268435456",
        ),
        verify="both counts must stay at 0 over a window",
        note=COMPUTE_IS_NOT_LATENCY,
    )


def _gain(snapshot: MetricsSnapshot, device: DeviceFigures, copies: CopyTimes | None) -> Gain | None:
    """Per batch, which each of its requests waits for: the copies' excess over pinned speed, and the allocations."""
    batches = batch_count(snapshot)
    if not batches:
        return None
    allocation_s = (device.hot_allocation_s or 0.0) / batches
    if copies is None:
        return latency_gain(snapshot, at_most(allocation_s), GainLabel.UPPER_BOUND)
    if copies.pinned_s is None:
        whole_s = (copies.h2d_s + copies.d2h_s) / copies.batches if device.pageable_copies else 0.0
        return latency_gain(snapshot, at_most(whole_s + allocation_s), GainLabel.UPPER_BOUND)
    excess_s = (copies.h2d_s + copies.d2h_s - copies.pinned_s) / copies.batches if device.pageable_copies else 0.0
    value_s = max(0.0, excess_s) + allocation_s
    return latency_gain(snapshot, Interval(value_s, 0.75 * value_s, 1.25 * value_s), GainLabel.MODELLED)

"""What compute-bound and memory-bound share: the device limits, and most of its time goes to layers at one roof."""

from __future__ import annotations

from dataclasses import dataclass

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Missing,
    percent,
    refuted,
    unrecorded,
    unverified,
)
from service.diagnosis.layers import LayerClass, LayerTable, classify
from service.diagnosis.misconceptions import UTILISATION_IS_NOT_EFFICIENCY
from service.diagnosis.stations import SATURATED_LOAD, is_device_saturated, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Station

MOST = 0.5
KNOWN = 0.7
"""Least share of the time whose bound must be known before the device is said to be bound by anything."""

BUSY = 0.9
ACTIVE = 0.5
"""Least activity of the SMs of a GPU that is said to be at a roof; NVIDIA's guidance calls less ineffective."""


@dataclass(frozen=True, slots=True)
class AtRoof:
    """Layers at one roof.

    Attributes:
        table: the layers of the bucket that took most time.
        share: of its time in layers at that roof.
        evidence: that it rests on.
    """

    table: LayerTable
    share: float
    evidence: tuple[Evidence, ...]

    def precision(self, stated: str) -> str:
        """What the model computes in: as `stated`, else the type of the layers that take most time."""
        times_s: dict[str, float] = {}
        for layer in self.table.layers:
            times_s[layer.figures.dtype] = times_s.get(layer.figures.dtype, 0.0) + layer.time_s
        return stated or max(times_s, key=lambda dtype: times_s[dtype])


def at_roof(snapshot: MetricsSnapshot, kind: BottleneckClass, roof: LayerClass) -> AtRoof | Finding:
    """Whether most of the device's time is at `roof` while the device limits; else the finding that it is not."""
    loads = station_loads(snapshot)
    device = load_of(loads, Station.DEVICE)
    evidence = _activity(snapshot)
    if device is None:
        return unrecorded(kind, "busy times of the device")
    evidence = (Evidence("device load", device.load, "ratio", SATURATED_LOAD), *evidence)
    if device.is_doubtful:
        return unrecorded(kind, "costs of full batches (the cost table, or probe P4)", *evidence)
    if not is_device_saturated(loads):
        return refuted(kind, f"the device has room: it is {percent(device.load)} loaded", *evidence)
    if not snapshot.layers or snapshot.probes.peaks is None:
        return unverified(
            kind,
            "the device limits; by which roof is not known",
            *evidence,
            missing=(Missing("the layers' times and the device's peaks", "P6 and P9"),),
        )
    return _by_layers(snapshot, kind, roof, evidence)


def _by_layers(
    snapshot: MetricsSnapshot, kind: BottleneckClass, roof: LayerClass, evidence: tuple[Evidence, ...]
) -> AtRoof | Finding:
    table = classify(snapshot.layers[0], snapshot.probes.peaks)
    share = table.share_of(roof)
    evidence = (
        Evidence(f"time in {roof.value}-bound layers", share, "ratio", MOST),
        Evidence("time whose bound is known", table.coverage, "ratio", KNOWN),
        *evidence,
    )
    if share > MOST:
        return _unless_idle(snapshot, kind, AtRoof(table, share, evidence))
    if share + 1.0 - table.coverage > MOST:
        return unverified(
            kind,
            f"{percent(share)} of the time is {roof.value}-bound, and {percent(1.0 - table.coverage)} is not known",
            *evidence,
            missing=(Missing("FLOPs and bytes of more layers", "P6 of an engine built with detailed profiling"),),
        )
    return refuted(
        kind,
        f"{percent(share)} of the time is in {roof.value}-bound layers",
        *evidence,
        note=UTILISATION_IS_NOT_EFFICIENCY if _is_busy(snapshot) else "",
    )


def _is_busy(snapshot: MetricsSnapshot) -> bool:
    device = load_of(station_loads(snapshot), Station.DEVICE)
    return device is not None and device.utilisation >= BUSY


def _unless_idle(snapshot: MetricsSnapshot, kind: BottleneckClass, found: AtRoof) -> AtRoof | Finding:
    """Layers at a roof keep the SMs busy: where GPM saw them idle, the layers are not what runs."""
    activity = snapshot.gpu.sm_activity_ratio if snapshot.gpu else None
    if activity is None or activity >= ACTIVE:
        return found
    return refuted(
        kind,
        f"the layers are at the roof, but only {percent(activity)} of the SMs were busy",
        *found.evidence,
        note=UTILISATION_IS_NOT_EFFICIENCY,
    )


def _activity(snapshot: MetricsSnapshot) -> tuple[Evidence, ...]:
    """What the GPU's counters say, where they say anything."""
    gpu = snapshot.gpu
    if gpu is None:
        return ()
    told = (
        ("SM activity", gpu.sm_activity_ratio),
        ("tensor core activity", gpu.tensor_activity_ratio),
        ("memory bandwidth used", gpu.memory_bandwidth_ratio),
        ("GPU utilisation", gpu.utilization_ratio),
    )
    return tuple(Evidence(name, value, "ratio") for name, value in told if value is not None)

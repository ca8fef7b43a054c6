"""batch-too-small: work waits while the device runs batches that are smaller than it could run at hardly more cost.

Symptom: a backlog beside batches that are full, or beside small ones whose company waits elsewhere. It is told from
overload by the cost table: twice the rows must take less than 1.5 times as long (taxonomy class 3); from 1.5 on the
device is full, and larger batches help little.
"""

from __future__ import annotations

from service.buckets import Bucket
from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    GainLabel,
    Missing,
    Verdict,
    percent,
    refuted,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import throughput_gain
from service.diagnosis.misconceptions import LARGER_IS_NOT_CHEAPER
from service.diagnosis.observed import batch_count, waiting_share
from service.diagnosis.stations import SATURATED_LOAD, is_device_saturated, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.BATCH_TOO_SMALL
CHEAP_DOUBLING = 1.5
LONG_WAIT = 0.1
FULL = 0.9
MOSTLY = 0.5


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether batches larger than the largest bucket would raise throughput."""
    loads = station_loads(snapshot)
    device, wait = load_of(loads, Station.DEVICE), waiting_share(snapshot)
    if device is None or wait is None or not batch_count(snapshot):
        return unrecorded(KIND, "batches, the wait for a lane, and the device's busy time")
    top = snapshot.model.batch_sizes[-1]
    full = _full_share(snapshot, top)
    evidence = (
        Evidence("rows in full largest batches", full, "ratio", MOSTLY),
        Evidence("wait for a lane, of the latency", wait, "ratio", LONG_WAIT),
        Evidence("device load", device.load, "ratio", SATURATED_LOAD),
    )
    if device.is_doubtful:
        return unrecorded(KIND, "costs of full batches (the cost table, or probe P4)", *evidence)
    if not is_device_saturated(loads) or wait < LONG_WAIT:
        return refuted(KIND, "the device keeps up with the batches as they are", *evidence)
    if full < MOSTLY:
        return refuted(KIND, f"only {percent(full)} of the rows ran in full batches of {top}", *evidence)
    ratio = _doubling(snapshot, top)
    if ratio is None:
        return unverified(
            KIND,
            f"batches of {top} are full and requests wait; what a batch of {2 * top} takes is not known",
            *evidence,
            missing=(Missing(f"the time of a batch of {2 * top} rows", "P5"),),
        )
    return _judged(snapshot, top, ratio, evidence)


def _judged(snapshot: MetricsSnapshot, top: int, ratio: Interval, symptoms: tuple[Evidence, ...]) -> Finding:
    evidence = (*symptoms, Evidence(f"time of {2 * top} rows over {top}", ratio.value, "ratio", CHEAP_DOUBLING))
    if ratio.value >= CHEAP_DOUBLING:
        return refuted(
            KIND, f"twice the rows take {ratio.value:.2f} times as long", *evidence, note=LARGER_IS_NOT_CHEAPER
        )
    speed_up = Interval(2.0 / ratio.value, 2.0 / ratio.high, 2.0 / ratio.low)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"most rows ran in full batches of {top} while requests waited; twice the rows take only "
        f"{ratio.value:.2f} times as long",
        evidence=evidence,
        gain=throughput_gain(station_loads(snapshot), Station.DEVICE, speed_up, GainLabel.MODELLED),
        fix=Fix(
            "let batches grow; a TensorRT plan needs a profile that reaches so far",
            card=f"[batching]\nmax_batch_size = {2 * top}",
        ),
        verify=f"rows per batch must pass {top}, and rows per second must grow",
    )


def _full_share(snapshot: MetricsSnapshot, top: int) -> float:
    """Share of the rows that ran in batches of the largest size whose rows were nearly all real."""
    rows = sum(use.rows for use in snapshot.buckets)
    full = sum(
        use.rows
        for use in snapshot.buckets
        if use.bucket.padded_size == top and use.padded_rows and use.rows / use.padded_rows >= FULL
    )
    return full / rows if rows else 0.0


def _doubling(snapshot: MetricsSnapshot, top: int) -> Interval | None:
    """Time of twice the largest batch over that of the largest, at the dims that most rows have."""
    busiest = max(snapshot.buckets, key=lambda use: use.rows)
    measured = snapshot.probes.other_costs.get(Bucket(2 * top, busiest.bucket.dims, busiest.bucket.form))
    now_s = snapshot.costs_s.get(Bucket(top, busiest.bucket.dims, busiest.bucket.form))
    return None if measured is None or not now_s else measured.scaled(1.0 / now_s)

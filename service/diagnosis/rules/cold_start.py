"""cold-start: batches in the window were the first of their kind, and slow for it.

The lanes count batches that were the first of their bucket, had to allocate or to capture (taxonomy class 24: any).
They lengthen the tail; of the mean they cost what they took beyond the steady batches of their bucket.
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    GainLabel,
    Verdict,
    refuted,
    seconds,
    unrecorded,
)
from service.diagnosis.gains import latency_gain
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import BucketUse
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.COLD_START
SLOW = 1.5
"""A first batch that takes less than this many steady ones' time is none to speak of."""


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether requests paid for warming up."""
    recorded = [use for use in snapshot.buckets if use.cold is not None]
    if not recorded:
        return unrecorded(KIND, "first batches of each bucket")
    count = sum(use.cold.count for use in recorded if use.cold)
    excess_s = sum(_excess_s(snapshot, use) for use in recorded)
    worst = max((ratio for use in recorded if (ratio := _slowness(snapshot, use)) is not None), default=1.0)
    evidence = (
        Evidence("first batches", float(count), "batches", 0.0),
        Evidence("slowest kind of them over its steady batches", worst, "ratio", SLOW),
        Evidence("what they took beyond steady batches", excess_s, "s"),
    )
    if not count or worst < SLOW:
        return refuted(KIND, f"{count} batches were the first of their kind, and none was slow for it", *evidence)
    batches = sum(use.batches for use in recorded)
    removed_s = excess_s / batches
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{count} batches were the first of their kind, up to {worst:.1f} times as slow as the next ones: "
        f"{seconds(excess_s)} in all",
        evidence=evidence,
        # Each request waits for its whole batch, and the ones behind it wait too.
        gain=latency_gain(snapshot, Interval(removed_s, removed_s, 3.0 * removed_s), GainLabel.MODELLED),
        fix=Fix(
            "name every size that comes in [buckets]: they are warmed before the server is ready; let balancers wait "
            "for /v2/health/ready",
            card=_buckets(snapshot),
        ),
        verify="no batch after readiness may be the first of its bucket",
    )


def _steady_s(snapshot: MetricsSnapshot, use: BucketUse) -> float | None:
    """Mean of the batches that were not the first; where all were, what warm-up measured."""
    if use.compute is not None and use.cold is not None and use.compute.count > use.cold.count:
        return (use.compute.sum_s - use.cold.sum_s) / (use.compute.count - use.cold.count)
    return snapshot.costs_s.get(use.bucket)


def _slowness(snapshot: MetricsSnapshot, use: BucketUse) -> float | None:
    steady_s, cold_s = _steady_s(snapshot, use), use.cold.mean_s if use.cold else None
    return None if not steady_s or steady_s < 0 or cold_s is None else cold_s / steady_s


def _excess_s(snapshot: MetricsSnapshot, use: BucketUse) -> float:
    steady_s = _steady_s(snapshot, use)
    return 0.0 if steady_s is None or use.cold is None else max(0.0, use.cold.sum_s - use.cold.count * steady_s)


def _buckets(snapshot: MetricsSnapshot) -> str:
    exact = [
        name for name, sizes in zip(snapshot.model.dim_names, snapshot.model.dim_sizes, strict=True) if sizes is None
    ]
    return "[buckets]\n" + "\n".join(f"{name} = [ ]  # the sizes that come" for name in exact) if exact else ""

"""How much of the device's time goes to padding, and which sizes would waste less of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

from service.buckets import Bucket
from service.diagnosis.bucket_sets import CostCurve, best_sizes, total_cost_s
from service.diagnosis.observed import MIN_REPLAYED, costs_of_main_form, device_time_s, rows_per_batch
from service.telemetry.snapshot import MetricsSnapshot

MOST_SIZES = 8
"""Sizes of a dimension that are proposed at most: each costs memory and start-up time."""

BATCH = "batch"


@dataclass(frozen=True, slots=True)
class AlternativeSizes:
    """Other padded sizes of one dimension.

    Attributes:
        dim: its name in `[buckets]`.
        sizes: ascending.
        saved: share of the device's time that they would have saved.
    """

    dim: str
    sizes: tuple[int, ...]
    saved: float


def cost_curve(snapshot: MetricsSnapshot) -> CostCurve | None:
    """Seconds by volume: the cost table, and what probe P5 tried beside it."""
    measured = [(bucket.volume, cost_s) for bucket, cost_s in costs_of_main_form(snapshot).items()]
    forms, others = {use.bucket.form for use in snapshot.buckets}, snapshot.probes.other_costs
    measured += [(bucket.volume, cost.value) for bucket, cost in others.items() if {bucket.form} == forms]
    return CostCurve.of(measured)


def wasted_share(snapshot: MetricsSnapshot, curve: CostCurve) -> float:
    """Share of the device's time by which batches took longer than what was in them would have, by the curve."""
    taken_s = sum(use.batches * curve.at(use.bucket.volume) for use in snapshot.buckets)
    needed_s = sum(
        use.batches * curve.at((use.useful_volume or 0) / use.batches) for use in snapshot.buckets if use.batches
    )
    return max(0.0, 1.0 - needed_s / taken_s) if taken_s > 0 else 0.0


def alternative_sizes(snapshot: MetricsSnapshot, curve: CostCurve) -> AlternativeSizes | None:
    """The change of one dimension's sizes, the batch's or the one dynamic one's, that saves most; None if none can."""
    candidates = [_other_lengths(snapshot, curve), _other_batches(snapshot)]
    return max((one for one in candidates if one is not None), key=lambda one: one.saved, default=None)


def _other_lengths(snapshot: MetricsSnapshot, curve: CostCurve) -> AlternativeSizes | None:
    """The best sizes of the only dynamic dimension for the lengths that came."""
    log = snapshot.arrivals.log if snapshot.arrivals else ()
    rows = rows_per_batch(snapshot)
    if len(snapshot.model.dim_names) != 1 or len(log) < MIN_REPLAYED or not rows:
        return None
    now = snapshot.model.dim_sizes[0]
    if now is None:
        return None
    counts: Counter[int] = Counter()
    for arrival in log:
        counts[arrival.dims[0]] += arrival.rows
    sizes_served = snapshot.model.batch_sizes
    batch = sizes_served[min(bisect_left(sizes_served, rows), len(sizes_served) - 1)]

    def row_cost_s(length: int) -> float:
        return curve.at(batch * length) / batch

    sizes = best_sizes(counts, row_cost_s, max(MOST_SIZES, len(now)))
    before_s, after_s = total_cost_s(counts, row_cost_s, now), total_cost_s(counts, row_cost_s, sizes)
    return AlternativeSizes(snapshot.model.dim_names[0], sizes, 1.0 - after_s / before_s) if before_s > 0 else None


def _other_batches(snapshot: MetricsSnapshot) -> AlternativeSizes | None:
    """More batch sizes, among those whose time is known, for batches as they ran."""
    total_s = device_time_s(snapshot)
    known = dict(snapshot.costs_s) | {bucket: cost.value for bucket, cost in snapshot.probes.other_costs.items()}
    largest = snapshot.model.batch_sizes[-1]
    saved_s, added = 0.0, set(snapshot.model.batch_sizes)
    for use in snapshot.buckets:
        now_s = known.get(use.bucket)
        if now_s is None or not use.batches:
            continue
        mean_rows = use.rows / use.batches
        smaller = [
            (cost_s, bucket.padded_size)
            for bucket, cost_s in known.items()
            if _is_like(bucket, use.bucket) and mean_rows <= bucket.padded_size <= largest and cost_s < now_s
        ]
        if smaller:
            cost_s, size = min(smaller)
            saved_s += use.batches * (now_s - cost_s)
            added.add(size)
    return AlternativeSizes(BATCH, tuple(sorted(added)), saved_s / total_s) if total_s and saved_s > 0 else None


def _is_like(one: Bucket, other: Bucket) -> bool:
    return one.dims == other.dims and one.form is other.form

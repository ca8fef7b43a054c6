"""What launching without a CUDA Graph costs, by the reason for which there is none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from service.buckets import Bucket
from service.device_figures import MissReason
from service.diagnosis.observed import device_time_s
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import BucketUse
from service.telemetry.snapshot_probes import Interval

SWITCHED_OFF = frozenset({None, "disabled"})
"""Nobody tried to capture."""

CANNOT_CAPTURE = frozenset({MissReason.NOT_CAPTURABLE.value, MissReason.DATA_DEPENDENT.value})
"""What the engine does is not allowed under capture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerCost:
    """Batches that ran without a graph for one kind of reason.

    Attributes:
        batches: how many.
        share: of all batches.
        buckets: whose.
        saved: share of the device's time that graphs would save; None where probe P1 told nothing.
        is_measured: whether P1 ran for every one of the buckets.
        launch_ratio: host time of launching over the device's time of the same batches; None if not recorded.
    """

    batches: int
    share: float
    buckets: tuple[Bucket, ...]
    saved: Interval | None
    is_measured: bool
    launch_ratio: float | None


def eager_cost(snapshot: MetricsSnapshot, uses: Collection[BucketUse]) -> EagerCost:
    """What these buckets' eager batches cost.

    The saving is nearly the same for every bucket of an engine, for each launches the same kernels; of a bucket that
    P1 did not try, the least saving that it found elsewhere is taken.
    """
    eager = [use for use in uses if use.eager_runs]
    batches = sum(use.eager_runs for use in eager)
    total = sum(use.batches for use in snapshot.buckets)
    return EagerCost(
        batches=batches,
        share=batches / total if total else 0.0,
        buckets=tuple(use.bucket for use in eager),
        saved=_saved(snapshot, eager),
        is_measured=all(_saving(snapshot, use.bucket) is not None for use in eager),
        launch_ratio=_launch_ratio(eager),
    )


def uses_missing(snapshot: MetricsSnapshot, reasons: Collection[str | None]) -> list[BucketUse]:
    """Buckets with batches that ran eagerly for one of these reasons."""
    return [use for use in snapshot.buckets if use.eager_runs and use.miss_reason in reasons]


def _saving(snapshot: MetricsSnapshot, bucket: Bucket) -> Interval | None:
    probe = snapshot.probes.launches.get(bucket)
    return None if probe is None or probe.replay is None else probe.eager.minus(probe.replay)


def _saved(snapshot: MetricsSnapshot, eager: Collection[BucketUse]) -> Interval | None:
    known = [saving for bucket in snapshot.probes.launches if (saving := _saving(snapshot, bucket)) is not None]
    total_s = device_time_s(snapshot)
    if not known or not total_s:
        return None
    least = min(known, key=lambda saving: saving.value)
    savings = [(float(use.eager_runs), _saving(snapshot, use.bucket) or least) for use in eager]
    return Interval.weighted_sum(savings).scaled(1.0 / total_s)


def _launch_ratio(eager: Collection[BucketUse]) -> float | None:
    recorded = [(use.enqueue, use.compute) for use in eager if use.enqueue and use.compute]
    compute_s = sum(compute.sum_s for _, compute in recorded)
    return sum(enqueue.sum_s for enqueue, _ in recorded) / compute_s if compute_s > 0 else None

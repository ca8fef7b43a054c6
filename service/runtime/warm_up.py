"""What every lane does before its model is ready: each bucket is warmed; on the first lane it is measured too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.buckets import Bucket, BucketTable, CostTable, Unserved, UnservedReason
from service.errors import DeviceError, ExecutionFailed
from service.models import ModelSpec
from service.requests import Batch, Clock
from service.runtime.protocol import Lane
from service.runtime.synthetic import synthetic_batch
from service.units import NS_PER_MS

MAX_REPEATS = 5
REPEAT_BUDGET_NS = 60 * NS_PER_MS
LONG_RUN_NS = 150 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Warmth:
    """What the warm-up of a lane found.

    Attributes:
        costs: duration of a batch by bucket, by which no bucket is cheaper than one that it covers; empty where no
            bucket is known beforehand.
        unserved: the buckets that cannot run.
    """

    costs: CostTable
    unserved: Mapping[Bucket, Unserved]


def warm_up(
    lane: Lane,
    spec: ModelSpec,
    on_bucket: Callable[[Bucket], None],
    *,
    first_run_counts: bool = True,
    clock: Clock = time.monotonic_ns,
) -> Warmth:
    """Warms every known bucket, largest first, and measures a full batch in each.

    A bucket's cost is the median of up to `MAX_REPEATS` batches, fewer once they have taken `REPEAT_BUDGET_NS`
    together. Runs on the lane's thread.

    Args:
        lane: a fresh lane.
        spec: its model.
        on_bucket: called after each bucket, on this thread.
        first_run_counts: whether a first run of more than `LONG_RUN_NS` is taken for the cost: where the model is all
            that it runs, what is done once is little beside it, and a second run would double the start-up. On a
            device what is done once, such as capturing a graph, may be all of it.
        clock: monotonic nanoseconds.

    Raises:
        ModelLoadFailed: the model runs, but not as a batch of rows.
        DeviceError: the device is lost.
    """
    measured_ns: dict[Bucket, int] = {}
    unserved: dict[Bucket, Unserved] = {}
    for bucket in spec.buckets.known():
        began_ns = clock()
        try:
            lane.warm_up(bucket)
            first_ns = clock() - began_ns
            is_long = first_run_counts and first_ns > LONG_RUN_NS
            measured_ns[bucket] = first_ns if is_long else _median_cost_ns(lane, synthetic_batch(spec, bucket))
        except (ExecutionFailed, DeviceError) as error:
            if isinstance(error, DeviceError) and error.is_sticky:
                raise
            unserved[bucket] = Unserved(UnservedReason.CANNOT_RUN, error.message)
        on_bucket(bucket)
    return Warmth(CostTable(without_noise(measured_ns, spec.buckets)), unserved)


def without_noise(measured_ns: Mapping[Bucket, int], buckets: BucketTable) -> dict[Bucket, int]:
    """Costs raised to that of the dearest bucket they cover: within a form, larger batches and dims cost no less."""
    return {
        bucket: max(
            cost_ns
            for smaller, cost_ns in measured_ns.items()
            if smaller.padded_size <= bucket.padded_size and buckets.covers(bucket.home, smaller.home)
        )
        for bucket in measured_ns
    }


def _median_cost_ns(lane: Lane, batch: Batch) -> int:
    durations_ns: list[int] = []
    while len(durations_ns) < MAX_REPEATS and sum(durations_ns) < REPEAT_BUDGET_NS:
        timings = lane.sync(lane.enqueue(batch)).timings
        durations_ns.append(max(1, timings.copied_out - timings.started))
    return int(statistics.median(durations_ns))

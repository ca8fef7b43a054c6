"""P5: what batches take in buckets that the card does not serve: twice the largest batch, and sizes between two.

Each is timed in turns with a bucket that is served, and its cost is that bucket's of the cost table times the ratio:
both costs then mean the same, whatever the traffic beside them does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from types import MappingProxyType

from service.batching.lane_pool import LanePool
from service.buckets import Bucket, Form
from service.models import MAX_BUCKET_BYTES, ModelSpec
from service.probes.bench import ROUND_NS, ROUNDS, Bench, NotHere, Results, Rounds, in_turns, launches_in_round
from service.probes.copies import padded_bytes
from service.probes.drive import batches_per_s, spare_lanes
from service.probes.intervals import median_ratio
from service.runtime.probe import Probe
from service.runtime.protocol import Lane
from service.runtime.synthetic import synthetic_batch
from service.telemetry.snapshot_probes import Interval, ProbeFigures
from service.units import NS_PER_S

TimeOf = Callable[[], float]
"""Nanoseconds per batch, measured for one side of a round."""


def other_costs(bench: Bench) -> Rounds:
    """Every bucket of `candidates` that the engine can run.

    Raises:
        NotHere: there is none.
        ServiceError: the served bucket cannot be run beside the lanes.
    """
    buckets = bench.buckets_of(Form.TENSORS)
    if not buckets:
        raise NotHere("all traffic is media, whose batch sizes are those of the task's kernels")
    served = buckets[0]
    is_on_device = bench.is_on_device
    others = [bucket for bucket in candidates(bench.spec, served) if not is_on_device or bench.backend.profiles(bucket)]
    if not others:
        raise NotHere(f"the engine runs no batch of other sizes than those that are served at bucket {served.label}")
    found: dict[Bucket, Interval] = {}
    for bucket in others:
        if not (yield):
            break
        with ExitStack() as stack:
            pair = _on_device if is_on_device else _on_lane
            times_of = pair(bench, (bucket, served), stack)
            times = []
            for number in range(ROUNDS):
                if not (yield):
                    break
                times.append(in_turns(number, times_of))
        ratio = median_ratio([other for other, _ in times], [known for _, known in times])
        if ratio is not None:
            found[bucket] = ratio.scaled(bench.costs.cost_ns(served) / NS_PER_S)
    return Results(ProbeFigures(other_costs=MappingProxyType(found)))


def candidates(spec: ModelSpec, served: Bucket) -> tuple[Bucket, ...]:
    """Sizes worth knowing beside a busy bucket: twice the largest batch, and half-way down to the next smaller one."""
    if not spec.has_batch_dim:
        return ()
    sizes = spec.buckets.sizes_at(served.home)
    smaller = max((size for size in sizes if size < served.padded_size), default=0)
    tried = (2 * sizes[-1], (smaller + served.padded_size) // 2)
    others = [Bucket(size, *served.home) for size in tried if size and size not in sizes]
    return tuple(bucket for bucket in others if (padded_bytes(spec, spec.inputs, bucket) or 0) <= MAX_BUCKET_BYTES)


def _on_device(bench: Bench, buckets: Sequence[Bucket], stack: ExitStack) -> list[TimeOf]:
    return [partial(_probed_ns, stack.enter_context(closing(bench.probe(bucket)))) for bucket in buckets]


def _probed_ns(probe: Probe) -> float:
    """Copies and execution one after another, as a batch alone on a lane has them."""
    run = probe.replay if probe.replay(1) else probe.eager
    total_ns = 0.0
    for part in (probe.h2d, run, probe.d2h):
        rough = part(1)
        times = part(launches_in_round(rough)) if rough else None
        total_ns += times.device_ns if times else 0.0
    return max(1.0, total_ns)


def _on_lane(bench: Bench, buckets: Sequence[Bucket], stack: ExitStack) -> list[TimeOf]:
    pool = stack.enter_context(spare_lanes(bench.backend))
    pool.grow(1)
    for bucket in buckets:
        pool.call(0, partial(_warm, bucket=bucket))
    return [partial(_lane_ns, bench, pool, bucket) for bucket in buckets]


def _warm(lane: Lane, *, bucket: Bucket) -> None:
    lane.warm_up(bucket)


def _lane_ns(bench: Bench, pool: LanePool, bucket: Bucket) -> float:
    batch = synthetic_batch(bench.spec, bucket)
    rate = batches_per_s(pool, batch, lanes=1, depth=1, duration_ns=ROUND_NS, clock=bench.tools.clock)
    return NS_PER_S / rate

"""P3: what copies add to back-to-back execution although they overlap.

A lane that is kept full takes some time per batch; replays that follow each other, with their inputs on the device
already, take less. The difference holds what the host does too, so it counts as copying no further than the copies
themselves take: a host that is slow at launching must not pass for a slow bus.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import partial
from types import MappingProxyType

from service.batching.lane_pool import LanePool
from service.buckets import Bucket
from service.probes.bench import ROUND_NS, ROUNDS, Bench, NotHere, Results, Rounds, in_turns, launches_in_round
from service.probes.drive import batches_per_s, spare_lanes
from service.probes.intervals import median_interval
from service.runtime.probe import Probe
from service.runtime.synthetic import synthetic_batch
from service.telemetry.snapshot_probes import Interval, ProbeFigures
from service.units import NS_PER_S


def exposed_copies(bench: Bench) -> Rounds:
    """Every bucket of the bench, one after another, on one spare lane.

    Raises:
        NotHere: there is no device, or it has no memory left for another lane.
        ServiceError: a bucket cannot be run beside the lanes.
    """
    bench.require_device()
    if not bench.has_room(1):
        raise NotHere("the device has too little memory left for another lane")
    found: dict[Bucket, Interval] = {}
    with spare_lanes(bench.backend) as pool:
        pool.grow(1)
        for bucket in bench.buckets:
            if not (yield):
                break
            exposed_s = yield from _rounds(bench, pool, bucket)
            judged = median_interval(exposed_s)
            if judged is not None:
                found[bucket] = judged
    return Results(ProbeFigures(exposed_copy=MappingProxyType(found)))


def _rounds(bench: Bench, pool: LanePool, bucket: Bucket) -> Generator[None, bool, list[float]]:
    """Seconds per batch, one per round."""
    batch, depth, clock = synthetic_batch(bench.spec, bucket), bench.backend.lane_depth, bench.tools.clock
    pool.call(0, lambda lane: lane.warm_up(bucket))

    def lane_ns_of() -> float:
        return NS_PER_S / batches_per_s(pool, batch, lanes=1, depth=depth, duration_ns=ROUND_NS, clock=clock)

    exposed_s: list[float] = []
    with closing(bench.probe(bucket)) as probe:
        for number in range(ROUNDS):
            if not (yield):
                break
            lane_ns, alone_ns = in_turns(number, (lane_ns_of, partial(_alone_ns, probe)))
            count = launches_in_round(probe.h2d(1))
            copy_ns = probe.h2d(count).device_ns + probe.d2h(count).device_ns
            exposed_s.append(exposed_ns(lane_ns, alone_ns, copy_ns) / NS_PER_S)
    return exposed_s


def exposed_ns(lane_ns: float, alone_ns: float, copy_ns: float) -> float:
    """Of a lane's time per batch, what its copies add to the execution alone."""
    return min(lane_ns - alone_ns, copy_ns)


def _alone_ns(probe: Probe) -> float:
    rough = probe.replay(1) or probe.eager(1)
    count = launches_in_round(rough)
    return (probe.replay(count) or probe.eager(count)).device_ns

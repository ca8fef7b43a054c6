"""P4: full batches on one spare lane, on as many as serve, and on more: what the device, or the CPU, can do at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from service.batching.lane_count import LANE_LIMIT
from service.probes.bench import ROUND_NS, Bench, NotHere, Results, Rounds, in_turns
from service.probes.drive import batches_per_s, spare_lanes
from service.probes.intervals import median_interval
from service.runtime.synthetic import synthetic_batch
from service.telemetry.snapshot_probes import Interval, ProbeFigures

LANE_ROUNDS = 12
WINDOW_NS = 3 * ROUND_NS


def lanes(bench: Bench) -> Rounds:
    """The numbers of `lane_counts`, in turns, in the bucket that serves most rows per second.

    Raises:
        NotHere: the device has no memory left for as many lanes as serve.
        ServiceError: a lane fails.
    """
    counts = [count for count in lane_counts(bench.lanes) if bench.has_room(count)]
    if len(counts) < 2:
        raise NotHere(f"the device has too little memory left for {lane_counts(bench.lanes)[1]} more lanes")
    bucket, tools = bench.fullest, bench.tools
    batch, depth = synthetic_batch(bench.spec, bucket), bench.backend.lane_depth
    rates: dict[int, list[float]] = {count: [] for count in counts}
    with spare_lanes(bench.backend) as pool:
        while len(pool) < counts[-1]:
            if not (yield):
                return Results()
            pool.grow(len(pool) + 1)
            pool.call(len(pool) - 1, lambda lane: lane.warm_up(bucket))

        def rate(count: int) -> float:
            return batches_per_s(pool, batch, lanes=count, depth=depth, duration_ns=WINDOW_NS, clock=tools.clock)

        for number in range(LANE_ROUNDS):
            if not (yield):
                break
            found = in_turns(number, [partial(rate, count) for count in counts])
            for count, batches in zip(counts, found, strict=True):
                rates[count].append(batches * bucket.padded_size)
    return Results(ProbeFigures(lane_rates=MappingProxyType(judge(rates))))


def lane_counts(present: int) -> tuple[int, ...]:
    """One lane, the present number, one more and twice as many, as far as `LANE_LIMIT` goes; ascending."""
    tried = {1, present, *(count for count in (present + 1, 2 * present) if count <= max(LANE_LIMIT, present))}
    return tuple(sorted(tried | ({2} if present == 1 else set())))


def judge(rates: Mapping[int, Sequence[float]]) -> dict[int, Interval]:
    """The rates of all rounds, by the number of lanes; those of too few rounds are left out."""
    judged = {count: median_interval(rows_per_s) for count, rows_per_s in rates.items()}
    return {count: interval for count, interval in judged.items() if interval is not None}

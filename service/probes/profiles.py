"""P7: every busy shape on every optimization profile that allows it, in turns."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from types import MappingProxyType

from service.buckets import Bucket, Form
from service.probes.bench import ROUNDS, Bench, NotHere, Results, Rounds, in_turns, launches_in_round
from service.probes.intervals import median_interval
from service.runtime.probe import Probe
from service.telemetry.snapshot_probes import Interval, ProbeFigures
from service.units import NS_PER_S

MOST_PROFILES = 4
"""That are tried for one bucket: each takes a context and buffers beside the lanes'."""


def profiles(bench: Bench) -> Rounds:
    """The buckets of tensors that several profiles allow, one after another.

    Raises:
        NotHere: no bucket has two profiles.
        ServiceError: a bucket cannot be run beside the lanes.
    """
    allowed = {bucket: bench.backend.profiles(bucket)[:MOST_PROFILES] for bucket in bench.buckets_of(Form.TENSORS)}
    several = {bucket: numbers for bucket, numbers in allowed.items() if len(numbers) > 1}
    if not several:
        raise NotHere("every busy bucket has one profile at most, so there is nothing to compare")
    found: dict[Bucket, MappingProxyType[int, Interval]] = {}
    for bucket, numbers in several.items():
        if not (yield):
            break
        times_s: list[list[float]] = []
        with ExitStack() as stack:
            probes = [stack.enter_context(closing(bench.probe(bucket, profile=number))) for number in numbers]
            for number in range(ROUNDS):
                if not (yield):
                    break
                times_s.append(in_turns(number, [partial(_time_s, probe) for probe in probes]))
        judged = [median_interval(times) for times in zip(*times_s, strict=True)]
        costs = {number: cost for number, cost in zip(numbers, judged, strict=False) if cost is not None}
        if len(costs) > 1:
            found[bucket] = MappingProxyType(costs)
    return Results(ProbeFigures(profile_costs=MappingProxyType(found)))


def _time_s(probe: Probe) -> float:
    count = launches_in_round(probe.replay(1) or probe.eager(1))
    return (probe.replay(count) or probe.eager(count)).device_ns / NS_PER_S

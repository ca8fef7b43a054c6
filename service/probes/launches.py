"""P1: one bucket by its CUDA Graph and without it, in turns: what launching costs, and what the graph saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType

from service.buckets import Bucket
from service.probes.bench import ROUNDS, Bench, Results, Rounds, in_turns, launches_in_round
from service.probes.intervals import median_interval
from service.runtime.probe import LaunchTimes
from service.telemetry.snapshot_probes import LaunchProbe, ProbeFigures
from service.units import NS_PER_S


def launches(bench: Bench) -> Rounds:
    """Every bucket of the bench, one after another.

    Raises:
        NotHere: there is no device.
        ServiceError: a bucket cannot be run beside the lanes.
    """
    found: dict[Bucket, LaunchProbe] = {}
    for bucket in bench.buckets:
        if not (yield):
            break
        with closing(bench.probe(bucket)) as probe:
            count = launches_in_round(probe.eager(1))
            sides: list[Callable[[], LaunchTimes | None]] = [partial(probe.eager, count)]
            sides += [partial(probe.replay, count)] if probe.replay(1) else []
            rounds: list[list[LaunchTimes | None]] = []
            for number in range(ROUNDS):
                if not (yield):
                    break
                rounds.append(in_turns(number, sides))
            eager = [times for times, *_ in rounds if times]
            replays = [times for _, *rest in rounds for times in rest if times]
        judged = judge(eager, replays)
        if judged is not None:
            found[bucket] = judged
    return Results(ProbeFigures(launches=MappingProxyType(found)))


def judge(eager: Sequence[LaunchTimes], replays: Sequence[LaunchTimes]) -> LaunchProbe | None:
    """What the rounds of one bucket say; None if there were too few."""
    without = median_interval([times.device_ns / NS_PER_S for times in eager])
    host = median_interval([times.host_ns / NS_PER_S for times in eager])
    if without is None or host is None:
        return None
    return LaunchProbe(without, median_interval([times.device_ns / NS_PER_S for times in replays]), host)

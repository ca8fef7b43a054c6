"""P11: parsing a request and rendering its answer, as JSON and as binary tensors, in turns."""

from __future__ import annotations

from functools import partial

from service.probes.bench import MAX_LAUNCHES, ROUND_NS, ROUNDS, Bench, CodecTrial, NotHere, Results, Rounds, in_turns
from service.probes.intervals import median_interval
from service.requests import Clock
from service.telemetry.snapshot_probes import ProbeFigures
from service.units import NS_PER_S


def codecs(bench: Bench) -> Rounds:
    """A request of as many rows as the traffic's usually have.

    Raises:
        NotHere: the codecs cannot be tried with synthetic tensors.
    """
    trial = bench.tools.codec()
    if trial is None:
        raise NotHere("the sizes of the model's outputs are known only once it has run")
    clock = bench.tools.clock
    counts = [count_for(_seconds(trial, clock, 1, is_binary=is_binary)) for is_binary in (False, True)]
    times_s: list[list[float]] = []
    for number in range(ROUNDS):
        if not (yield):
            break
        sides = [
            partial(_seconds, trial, clock, count, is_binary=is_binary)
            for count, is_binary in zip(counts, (False, True), strict=True)
        ]
        times_s.append(in_turns(number, sides))
    json, binary = ([each[side] for each in times_s] for side in (0, 1))
    return Results(ProbeFigures(json_codec=median_interval(json), binary_codec=median_interval(binary)))


def count_for(seconds: float) -> int:
    """So many repetitions that one side of a round lasts about `ROUND_NS`."""
    return max(1, min(MAX_LAUNCHES, round(ROUND_NS / NS_PER_S / max(1e-9, seconds))))


def _seconds(trial: CodecTrial, clock: Clock, count: int, *, is_binary: bool) -> float:
    began_ns = clock()
    for _ in range(count):
        trial.run(is_binary=is_binary)
    return (clock() - began_ns) / NS_PER_S / count

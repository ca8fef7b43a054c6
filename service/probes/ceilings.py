"""P10: how many rows per second the server answers at most: behind HTTP, and through HTTP on the loopback interface."""

from __future__ import annotations

from functools import partial

from service.probes.bench import Bench, Results, Rounds, in_turns
from service.probes.intervals import median_interval
from service.telemetry.snapshot_probes import ProbeFigures

CEILING_ROUNDS = 7
ROUND_S = 0.25
"""Of each side; the queue is kept full as long."""


def ceilings(bench: Bench) -> Rounds:
    """Both in turns. What others send meanwhile goes before, and is missing in the rates.

    Raises:
        ServiceError: the server refuses its own requests, or the sending process fails.
    """
    load = bench.tools.load
    rates: list[list[float]] = []
    for number in range(CEILING_ROUNDS):
        if not (yield):
            break
        sides = (partial(load.direct_rows_per_s, ROUND_S), partial(load.http_rows_per_s, ROUND_S))
        rates.append(in_turns(number, sides))
    direct, http = ([each[side] for each in rates] for side in (0, 1))
    return Results(ProbeFigures(direct_rows_per_s=median_interval(direct), http_rows_per_s=median_interval(http)))

"""Event loops of a window: the only one, or those of front ends and of the engine behind them. Pure.

The kernel spreads connections over front ends, not work, so one of them may be full while others have room. The
busiest speaks for all: as long as work is spread as it is, the server takes no more once that one is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from service.telemetry.histogram import Histograms
from service.telemetry.history import Span
from service.telemetry.snapshot_load import Station, StationFigures
from service.telemetry.window_load import minus, quantile_s
from service.units import NS_PER_S


class Loop(NamedTuple):
    """One event loop in the window: its CPU time, and how late its timer came."""

    cpu_ns: int
    lag: Histograms


def front_end_loops(span: Span) -> tuple[Loop, ...]:
    """Those of the front ends that are there at its end, the busiest first; what came meanwhile began at nothing."""
    before = {each.life: each for each in span.first.front_ends}
    loops = []
    for after in span.last.front_ends:
        early = before.get(after.life)
        if early is None:
            loops.append(Loop(after.loop_cpu_ns, after.loop_lag))
        else:
            loops.append(Loop(after.loop_cpu_ns - early.loop_cpu_ns, minus(after.loop_lag, early.loop_lag)))
    return tuple(sorted(loops, key=lambda loop: -loop.cpu_ns))


def speaking_loop(span: Span) -> Loop:
    """The loop whose lateness the clients feel most: that of the busiest front end, or of the only process."""
    loops = front_end_loops(span)
    return loops[0] if loops else _own_loop(span)


def loop_stations(span: Span) -> Mapping[Station, StationFigures]:
    """The stations that loops are. Each serves every model: their rows are those of all.

    Front ends count as if each were as busy as the busiest: so many servers, each with its demand per row.
    """
    rows, own = span.last.rows - span.first.rows, _own_loop(span).cpu_ns / NS_PER_S
    loops = front_end_loops(span)
    if not loops:
        return {Station.EVENT_LOOP: StationFigures(own, rows)}
    return {
        Station.EVENT_LOOP: StationFigures(len(loops) * loops[0].cpu_ns / NS_PER_S, rows, len(loops)),
        Station.ENGINE_LOOP: StationFigures(own, rows),
    }


def lag_p99_s(loop: Loop) -> float | None:
    """99th percentile of a loop's lateness; None where it was not looked at."""
    return quantile_s(loop.lag, 0.99)


def lag_mean_s(loop: Loop) -> float | None:
    """Mean of a loop's lateness; None likewise."""
    count = loop.lag.count()
    return loop.lag.sums[0] / count / NS_PER_S if count else None


def loop_wait_ratio(span: Span) -> float | None:
    """Share of the window in which the only process's loop could run and had no core; None where nobody knows."""
    early, late = span.first.loop_delay_ns, span.last.loop_delay_ns
    elapsed_ns = span.last.at_ns - span.first.at_ns
    if early is None or late is None or span.last.front_ends or elapsed_ns <= 0:
        return None
    return min(1.0, max(0.0, (late - early) / elapsed_ns))


def _own_loop(span: Span) -> Loop:
    return Loop(span.last.loop_cpu_ns - span.first.loop_cpu_ns, minus(span.last.loop_lag, span.first.loop_lag))

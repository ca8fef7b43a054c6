from __future__ import annotations

import numpy as np
import pytest

from service.probes.traffic import Baseline, Traffic, is_backed_up, slowed
from service.telemetry.totals import RequestTotals
from service.units import NS_PER_MS

NOTHING = RequestTotals.empty().fine


def after(durations, *spells: tuple[int, float]):
    """The histogram and so many requests more, each of so many milliseconds."""
    for count, ms in spells:
        durations = durations.plus(np.full((count, 1), int(ms * NS_PER_MS)))
    return durations


QUIET = Baseline(Traffic(NOTHING, 0.0), Traffic(after(NOTHING, (300, 2.0)), 0.0))


@pytest.mark.parametrize(
    ("spells", "is_slow"),
    [
        (((300, 2.0),), False),
        (((300, 2.8),), False),  # the tail of some hundred requests varies so much by itself
        (((300, 4.0),), True),
        (((299, 2.0), (1, 500.0)), False),  # one in three hundred is no percentile
        (((290, 2.0), (10, 50.0)), True),
        (((50, 9.0),), False),  # too few to be sure
    ],
)
def test_the_tail_of_the_traffic(spells, is_slow: bool) -> None:
    now = Traffic(after(QUIET.ended.durations, *spells), 0.0)
    assert bool(slowed(QUIET, now)) is is_slow


def test_the_reason_has_figures_and_a_remedy() -> None:
    reason = slowed(QUIET, Traffic(after(QUIET.ended.durations, (300, 20.0)), 0.0))
    assert "went from 2.1 to 20.4 ms" in reason
    assert '"exclusive"' in reason


def test_what_happened_before_the_baseline_does_not_count() -> None:
    before = after(NOTHING, (5000, 50.0))
    baseline = Baseline(Traffic(before, 0.0), Traffic(after(before, (300, 2.0)), 0.0))
    assert slowed(baseline, Traffic(after(baseline.ended.durations, (300, 10.0)), 0.0))


def test_without_requests_before_or_records_nothing_is_certain() -> None:
    idle = Baseline(Traffic(NOTHING, 0.0), Traffic(NOTHING, 0.0))
    assert slowed(idle, Traffic(after(NOTHING, (300, 20.0)), 0.0)) == ""
    nothing = Traffic(None, 0.0)
    assert slowed(Baseline(nothing, nothing), nothing) == ""
    assert nothing.answered == 0


@pytest.mark.parametrize(
    ("before_s", "now_s", "is_too_much"),
    [(0.0, 0.0, False), (0.0, 0.04, False), (0.0, 0.06, True), (0.1, 0.15, False), (0.1, 0.25, True)],
)
def test_the_queue(before_s: float, now_s: float, is_too_much: bool) -> None:
    baseline = Baseline(Traffic(None, before_s), Traffic(None, before_s))
    assert is_backed_up(baseline, Traffic(None, now_s)) is is_too_much

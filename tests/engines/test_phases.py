"""Phases of a build, as TensorRT tells them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engines.events import Event, LogLine, PhaseFinished, PhaseStarted, PhaseStep
from engines.phases import Phase, Phases

TENSORRT = [
    PhaseStarted("build", None, 0),
    PhaseStarted("Building Engine", "build", 4),
    PhaseStep("Building Engine", 0),
    PhaseStarted("Tactic timing", "Building Engine", 10),
    PhaseStep("Tactic timing", 4),
]


def after(*events: Event) -> Phases:
    phases = Phases()
    for event in events:
        phases.apply(event)
    return phases


@pytest.mark.parametrize(
    ("events", "summary"),
    [
        ([], ""),
        ([PhaseStarted("parse", None, 0)], "parse"),
        ([PhaseStarted("check", None, 4), PhaseStep("check", 0)], "check, 25 %"),
        ([PhaseStarted("check", None, 4), PhaseStep("check", 9)], "check, 100 %"),
        (TENSORRT, "build, 38 %"),
        ([*TENSORRT, PhaseFinished("Tactic timing")], "build, 25 %"),
        ([*TENSORRT, PhaseFinished("build")], ""),
        ([PhaseStarted("a", None, 0), PhaseStarted("b", None, 2)], "b, 0 %"),
        ([PhaseStep("nobody's", 1), PhaseFinished("nobody's"), LogLine("info", "x")], ""),
        ([PhaseStarted("part", "never began", 2)], "part, 0 %"),
    ],
)
def test_summary(events: list[Event], summary: str) -> None:
    assert after(*events).summary == summary


def test_steps_may_be_told_in_any_order() -> None:
    phases = after(PhaseStarted("p", None, 9), PhaseStep("p", 5), PhaseStep("p", 3))
    assert phases.active == (Phase("p", None, 9, 6),)


def test_depth() -> None:
    phases = after(*TENSORRT)
    assert [phases.depth(phase) for phase in phases.active] == [0, 1, 2]


NAMES = st.sampled_from("abcd")
EVENTS = st.one_of(
    st.builds(PhaseStarted, NAMES, st.none() | NAMES, st.integers(0, 5)),
    st.builds(PhaseStep, NAMES, st.integers(0, 9)),
    st.builds(PhaseFinished, NAMES),
)


@example([PhaseStarted("a", None, 1), PhaseStarted("a", "a", 1)])
@example([PhaseStarted("a", None, 1), PhaseStarted("b", "a", 1), PhaseStarted("a", "b", 1)])
@given(st.lists(EVENTS, max_size=30))
def test_whatever_is_told_each_phase_has_a_fraction_and_a_depth(events: list[Event]) -> None:
    phases = after(*events)
    for phase in phases.active:
        fraction = phases.fraction(phase)
        assert fraction is None or 0 <= fraction <= 1
        assert 0 <= phases.depth(phase) < 4

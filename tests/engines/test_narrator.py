"""A build told in lines."""

from __future__ import annotations

import queue

import pytest

from engines.events import LogLine, PhaseStarted, PhaseStep
from engines.narrator import Narrator, duration_text

WAIT_S = 10


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (3600, "60 min 0 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_lines_are_passed_on_as_they_come() -> None:
    said: list[tuple[str, str]] = []
    with Narrator(lambda severity, text: said.append((severity, text))) as narrator:
        narrator(LogLine("warning", "weights were narrowed"))
        narrator(PhaseStarted("build", None, 0))
    assert said == [("warning", "weights were narrowed")]


def test_a_build_that_says_nothing_is_said_to_go_on() -> None:
    said: queue.Queue[str] = queue.Queue()
    times = iter([100.0, 100.2, 184.0])
    with Narrator(lambda severity, text: said.put(text), interval_s=0.01, clock=lambda: next(times, 999.0)) as narrator:
        assert said.get(timeout=WAIT_S) == "0 s so far (starting)"
        narrator(PhaseStarted("build", None, 2))
        narrator(PhaseStep("build", 0))
        while "starting" in (text := said.get(timeout=WAIT_S)):
            pass
        assert text.endswith("so far (build, 50 %)")

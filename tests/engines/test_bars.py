"""Bars, on a terminal of rich's own."""

from __future__ import annotations

import io

from rich.console import Console

from engines.bars import BuildBars
from engines.events import Event, LogLine, PhaseFinished, PhaseStarted, PhaseStep


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def shown(*events: Event) -> list[str]:
    """What stands on the screen after these events, line by line, without the times."""
    screen = Console(file=io.StringIO(), width=100, color_system=None)
    with BuildBars(console(), "m[1]") as bars:
        for event in events:
            bars(event)
        with screen.capture() as capture:
            screen.print(bars.picture)
    return [line.rstrip().rsplit(" ", 1)[0].rstrip() for line in capture.get().splitlines()]


def text(lines: list[str]) -> list[str]:
    """Without spinner and bar."""
    return [" ".join(part for part in line[2:].split() if not set(part) & set("━╸╺")) for line in lines]


def test_a_build_that_tells_nothing_shows_that_it_goes_on() -> None:
    assert text(shown()) == ["building m[1]"]
    assert text(shown(PhaseStarted("build", None, 0))) == ["building m[1]", "build"]


def test_phases_stand_below_what_they_are_a_part_of_with_their_share() -> None:
    lines = shown(
        PhaseStarted("parse", None, 0),
        PhaseFinished("parse"),
        PhaseStarted("build", None, 0),
        PhaseStarted("Timing", "build", 4),
        PhaseStep("Timing", 0),
    )
    assert text(lines) == ["building m[1]", "build 25 %", "Timing 25 %"]
    assert lines[2].index("Timing") == lines[1].index("build") + 2


def test_lines_stay_above_the_bars() -> None:
    screen = console()
    with BuildBars(screen, "m[1]") as bars:
        bars(LogLine("warning", "weights were [narrowed]"))
    assert isinstance(screen.file, io.StringIO)
    assert "m[1]: weights were [narrowed]\n" in screen.file.getvalue()

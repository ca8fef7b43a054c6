"""The bars that a terminal shows while models are made ready."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from service.buckets import Bucket
from service.repository.start_up import LoadProgress, Phase
from service.server import PHASE_WORDS, StartupProgress


class Bars:
    """Start-up progress on a console that is no terminal."""

    def __init__(self) -> None:
        self.progress = StartupProgress(Console(file=io.StringIO(), force_terminal=True))

    def begin(self, model: str, total: int = 2) -> None:
        self.progress(LoadProgress(model, 0, total, Phase.WARM_UP))

    def end(self, model: str, total: int = 2) -> None:
        self.progress(LoadProgress(model, 0, total, Phase.LANES, is_over=True))

    def step(self, model: str, done: int, total: int = 2, phase: Phase = Phase.WARM_UP) -> None:
        self.progress(LoadProgress(model, done, total, phase, Bucket(done)))

    @property
    def shown(self) -> list[tuple[str, float]]:
        return [(task.description, task.completed) for task in self.progress._progress.tasks]

    @property
    def is_live(self) -> bool:
        return self.progress._progress.live.is_started


@pytest.fixture
def bars() -> Iterator[Bars]:
    made = Bars()
    yield made
    made.progress.close()


def test_a_bar_per_model_while_it_is_warmed(bars: Bars) -> None:
    bars.begin("a")
    bars.begin("b")
    bars.step("a", 1)
    assert bars.shown == [("a", 1), ("b", 0)]
    assert bars.is_live
    bars.step("a", 2)
    bars.end("a")
    assert bars.shown == [("b", 0)]
    bars.end("b")
    assert bars.shown == []
    assert not bars.is_live


def test_a_bar_tells_what_is_done_and_grows_with_the_lanes(bars: Bars) -> None:
    bars.begin("a")
    for phase, total, word in ((Phase.WARM_UP, 2, "warming"), (Phase.CHECKS, 2, "checking"), (Phase.LANES, 4, "lanes")):
        bars.step("a", 2, total, phase)
        (task,) = bars.progress._progress.tasks
        assert word in task.fields["phase"]
        assert task.total == total
    assert set(PHASE_WORDS) == set(Phase)


def test_a_model_that_failed_or_had_nothing_to_warm_leaves_no_bar(bars: Bars) -> None:
    for total in (2, 0):
        bars.begin("a", total)
        bars.end("a", total)
        assert bars.shown == []
        assert not bars.is_live


def test_a_model_that_failed_before_its_bar_is_no_trouble(bars: Bars) -> None:
    bars.end("a")
    assert bars.shown == []


def test_a_reload_has_a_bar_of_its_own(bars: Bars) -> None:
    for _ in range(2):
        bars.begin("a")
        bars.step("a", 1)
        assert bars.shown == [("a", 1)]
        assert bars.is_live
        bars.end("a")
        assert not bars.is_live

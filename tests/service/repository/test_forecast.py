"""Forecasts for composed models: what they count, what they learn, and what they are good for under overload."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.repository.forecast import ChainForecast, Progress

MS = 1_000_000


def begin(forecast: ChainForecast, now_ms: float = 0, allowed_ms: float = 1000, raw_ms: float = 0) -> Progress:
    now_ns = int(now_ms * MS)
    return forecast.begin(now_ns=now_ns, deadline_ns=now_ns + int(allowed_ms * MS), raw_ns=raw_ms * MS)


def teach(forecast: ChainForecast, *, host_ms: float = 0, **work_ms: float) -> None:
    """One request that ran alone, as long as its work."""
    progress = begin(forecast)
    for member, ms in work_ms.items():
        forecast.bring(progress, member, ms * MS)
        progress.with_members_ns += int(ms * MS)
    forecast.end(progress, now_ns=int((sum(work_ms.values()) + host_ms) * MS))


def raw_ms(forecast: ChainForecast, **backlog_ms: float) -> float:
    return forecast.raw_ns(lambda member: backlog_ms.get(member, 0) * MS) / MS


def test_before_anything_ran_nothing_is_foreseen() -> None:
    forecast = ChainForecast()
    assert raw_ms(forecast, a=500) == 0
    assert forecast.safe_ns(forecast.raw_ns(lambda member: 1)) == 0


@pytest.mark.parametrize(
    ("backlog", "expected"),
    [
        ({}, 1 + 10 + 30),
        ({"a": 100}, 100 + 10 + 30),  # it waits for the first member; the second is free by then
        ({"b": 5}, 1 + 10 + 30),  # what stands there is worked off before it comes
        ({"b": 100}, 100 + 30),
        ({"a": 100, "b": 100}, 100 + 10 + 30),
        ({"a": 100, "b": 200}, 200 + 30),
    ],
)
def test_members_are_passed_one_after_the_other(backlog: dict[str, float], expected: float) -> None:
    forecast = ChainForecast()
    teach(forecast, host_ms=1, a=10, b=30)
    assert raw_ms(forecast, **backlog) == pytest.approx(expected)


def test_what_others_have_not_brought_yet_is_counted() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10, b=30)
    others = [begin(forecast) for _ in range(4)]
    assert raw_ms(forecast) == pytest.approx(4 * 30 + 30)
    for other in others:
        forecast.bring(other, "a", 10 * MS)  # `a` tells of it from now on
    assert raw_ms(forecast, a=40) == pytest.approx(max(40 + 10, 4 * 30) + 30)
    forecast.bring(others[0], "b", 50 * MS)  # more than it owed: the queue of `b` has it, nobody else owes less
    assert raw_ms(forecast) == pytest.approx(3 * 30 + 30)
    forecast.forget(others[1])
    assert raw_ms(forecast) == pytest.approx(2 * 30 + 30)


def test_the_work_of_a_request_is_learnt_slowly_and_forgotten_where_it_does_not_come() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10, b=80)
    teach(forecast, a=10)  # a page without lines
    assert raw_ms(forecast) == pytest.approx(10 + 70)
    for _ in range(100):
        teach(forecast, a=10)
    assert raw_ms(forecast) == pytest.approx(10, abs=0.01)


def test_a_machine_that_is_slower_than_it_was_is_found_out() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10)
    for _ in range(60):
        progress = begin(forecast, raw_ms=10)
        forecast.bring(progress, "a", 10 * MS)
        forecast.end(progress, now_ns=30 * MS)
    assert forecast.safe_ns(100 * MS) == pytest.approx(300 * MS, rel=0.05)


def test_one_that_is_late_teaches_that_it_takes_longer_and_never_that_it_takes_less() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10)
    believed = forecast.safe_ns(100 * MS)
    late = begin(forecast, allowed_ms=100, raw_ms=50)
    forecast.end(late, now_ns=20 * MS, is_late=True)
    assert forecast.safe_ns(100 * MS) > believed
    believed, late = forecast.safe_ns(100 * MS), begin(forecast, allowed_ms=10, raw_ms=1000)
    forecast.end(late, now_ns=5 * MS, is_late=True)
    assert forecast.safe_ns(100 * MS) == believed


@pytest.mark.parametrize("is_late", [False, True])
def test_one_that_brings_more_than_others_tells_nothing_of_the_machine(is_late: bool) -> None:
    forecast = ChainForecast()
    for _ in range(20):
        teach(forecast, a=10, b=20)
    believed = forecast.safe_ns(100 * MS)
    page = begin(forecast, allowed_ms=500, raw_ms=30)
    forecast.bring(page, "a", 10 * MS)
    forecast.bring(page, "b", 480 * MS)
    forecast.end(page, now_ns=500 * MS, is_late=is_late)
    assert forecast.safe_ns(100 * MS) == pytest.approx(believed, rel=0.1)


def test_one_that_brings_nothing_tells_nothing_of_the_machine() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10, b=90)
    believed = forecast.safe_ns(100 * MS)
    empty = begin(forecast, raw_ms=100)
    forecast.bring(empty, "a", 10 * MS)
    forecast.end(empty, now_ns=10 * MS)
    assert forecast.safe_ns(100 * MS) == pytest.approx(believed)


def test_one_that_was_late_before_it_brought_all_is_no_reason_to_expect_less() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10, b=90)
    believed = forecast.safe_ns(100 * MS)
    late = begin(forecast, allowed_ms=100, raw_ms=100)
    forecast.bring(late, "a", 10 * MS)
    forecast.end(late, now_ns=100 * MS, is_late=True)
    assert forecast.safe_ns(100 * MS) == believed


def test_a_single_absurd_time_does_not_shut_the_model() -> None:
    forecast = ChainForecast()
    teach(forecast, a=10)
    forecast.end(begin(forecast, raw_ms=1), now_ns=10**15)
    assert forecast.safe_ns(1) < 16
    assert forecast.safe_ns(1) > 1


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", "c", "end", "late", "forget"]), st.integers(0, 1000)),
        max_size=80,
    )
)
def test_nothing_is_owed_once_all_have_ended(steps: list[tuple[int, str, int]]) -> None:
    forecast, running, now_ns = ChainForecast(), {}, 0
    for who, what, amount in steps:
        now_ns += amount
        progress = running.setdefault(who, begin(forecast, now_ns / MS, raw_ms=1))
        if what in "abc":
            forecast.bring(progress, what, amount)
        elif what == "forget":
            forecast.forget(running.pop(who))
        else:
            forecast.end(running.pop(who), now_ns=now_ns, is_late=what == "late")
        assert forecast.raw_ns(lambda member: 0.0) >= 0
    for progress in running.values():
        forecast.forget(progress)
    alone = forecast.raw_ns(lambda member: 0.0)
    assert forecast.raw_ns(lambda member: 0.0) == alone >= 0
    again = begin(forecast)
    forecast.forget(again)
    assert forecast.raw_ns(lambda member: 0.0) == pytest.approx(alone)


@dataclass
class Simulation:
    """Two members with a lane each, one after the other, in virtual time; both are slower than their costs say."""

    admits: bool
    first_ms: float
    second_ms: float
    slowness: float = 1.6
    allowed_ms: float = 2000
    forecast: ChainForecast = field(default_factory=ChainForecast)
    free_ms: dict[str, float] = field(default_factory=lambda: {"a": 0.0, "b": 0.0})
    running: int = 0
    answered: int = 0
    refused_late: int = 0
    events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)

    def at(self, ms: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (ms, next(self.order), event))

    def run(self, load: float, seconds: float) -> float:
        """Poisson arrivals at a multiple of the capacity; gives answers as a share of what could be had."""
        slowest_ms, arrival_ms = self.slowness * max(self.first_ms, self.second_ms), 0.0
        generator = random.Random(1)
        while arrival_ms < seconds * 1000:
            arrival_ms += generator.expovariate(load / slowest_ms)
            self.at(arrival_ms, self.arrive)
        while self.events:
            ms, _, event = heapq.heappop(self.events)
            event(ms)
        return self.answered * slowest_ms / (seconds * 1000)

    def arrive(self, ms: float) -> None:
        raw_ns = self.forecast.raw_ns(lambda member: max(0.0, self.free_ms[member] - ms) / self.slowness * MS)
        if self.admits and self.running and self.forecast.safe_ns(raw_ns) > self.allowed_ms * MS:
            return
        progress = begin(self.forecast, ms, self.allowed_ms, raw_ns / MS)
        self.running += 1
        self.serve(progress, "a", self.first_ms, ms, lambda end_ms: self.second(progress, end_ms))

    def second(self, progress: Progress, ms: float) -> None:
        self.serve(progress, "b", self.second_ms, ms, lambda end_ms: self.finish(progress, end_ms))

    def serve(self, progress: Progress, member: str, cost_ms: float, ms: float, then: Callable[[float], None]) -> None:
        self.forecast.bring(progress, member, cost_ms * MS)
        start_ms = max(ms, self.free_ms[member])
        if start_ms * MS > progress.deadline_ns:  # what its queue predicts, or finds out
            self.running -= 1
            self.refused_late += 1
            self.forecast.end(progress, now_ns=int(ms * MS), is_late=True)
            return
        self.free_ms[member] = start_ms + cost_ms * self.slowness
        progress.with_members_ns += int((self.free_ms[member] - ms) * MS)
        self.at(self.free_ms[member], then)

    def finish(self, progress: Progress, ms: float) -> None:
        self.running -= 1
        self.answered += 1
        self.forecast.end(progress, now_ns=int(ms * MS))


@pytest.mark.parametrize(("first_ms", "second_ms"), [(20, 100), (60, 100), (100, 20), (50, 50)])
def test_three_times_the_load_costs_nothing_that_could_be_answered(first_ms: float, second_ms: float) -> None:
    simulation = Simulation(True, first_ms, second_ms)
    assert simulation.run(load=3, seconds=120) >= 0.9
    assert simulation.refused_late <= 0.02 * simulation.answered


def test_a_load_that_it_can_bear_is_not_refused() -> None:
    simulation = Simulation(True, 20, 100)
    assert simulation.run(load=0.7, seconds=120) == pytest.approx(Simulation(False, 20, 100).run(0.7, 120), rel=0.01)

"""Integrals of occupancy against a plain simulation, and arrivals against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.telemetry.activity import MAX_ARRIVALS, Activity, Arrivals, Occupancy

SINCE_NS = 10**15


def integrals(stays: list[tuple[int, int]], until_ns: int) -> tuple[int, int, int]:
    """Number inside at the end, and the integrals of the number and of its square, step by step."""
    inside = np.zeros(until_ns, int)
    for start, end in stays:
        inside[start : min(end, until_ns)] += 1
    return sum(start <= until_ns < end for start, end in stays), int(inside.sum()), int((inside**2).sum())


STAYS = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 80)).map(lambda ends: (min(ends), max(ends))), max_size=12
)


@given(STAYS, st.integers(81, 100))
def test_occupancy_is_the_integral_of_who_is_inside(stays, until_ns):
    occupancy = Occupancy(SINCE_NS)
    events = sorted([(start, 0) for start, _ in stays] + [(end, 1) for _, end in stays])
    for at_ns, is_exit in events:
        (occupancy.leave if is_exit else occupancy.enter)(SINCE_NS + at_ns)
    assert tuple(occupancy.marks(SINCE_NS + until_ns)) == integrals(stays, until_ns)


def test_several_may_leave_at_once():
    one_by_one, at_once = Occupancy(0), Occupancy(0)
    for occupancy in (one_by_one, at_once):
        for at_ns in (1, 2, 3):
            occupancy.enter(at_ns)
    for _ in range(2):
        one_by_one.leave(10)
    at_once.leave(10, 2)
    assert at_once.marks(20) == one_by_one.marks(20)


def test_the_number_inside_counts_up_to_now():
    occupancy = Occupancy(0)
    occupancy.enter(10)
    assert occupancy.marks(30) == (1, 20, 20)
    assert occupancy.marks(40) == (1, 30, 30)


def test_a_stay_that_is_taken_back_has_no_area():
    occupancy = Occupancy(0)
    occupancy.enter(10)
    occupancy.enter(20)
    occupancy.take_back(10, 60)
    assert occupancy.marks(70)[:2] == (1, 50)


def test_arrivals_are_counted_and_their_gaps_with_them():
    arrivals = Arrivals()
    for at_s, rows in ((1, 2), (3, 1), (4, 5)):
        arrivals.add(int(at_s * 1e9), rows, (), received_ns=int(at_s * 1e9))
    marks = arrivals.marks()
    assert (marks.requests, marks.rows) == (3, 8)
    assert marks.gaps_s == pytest.approx(3.0)
    assert marks.gaps_squared == pytest.approx(5.0)
    assert [entry.rows for entry in arrivals.since(3_000_000_000)] == [1, 5]


def test_requests_are_told_in_the_order_of_their_first_bytes():
    arrivals = Arrivals()
    for at_ns, received_ns, rows in ((10, 7, 1), (11, 2, 2), (12, 9, 3)):
        arrivals.add(at_ns, rows, (), received_ns=received_ns)
    assert [entry.rows for entry in arrivals.since(0)] == [2, 1, 3]
    assert [entry.received_ns for entry in arrivals.since(7)] == [7, 9]


def test_only_the_latest_arrivals_are_kept():
    arrivals = Arrivals()
    for index in range(MAX_ARRIVALS + 5):
        arrivals.add(index, 1, (index,), received_ns=index)
    kept = arrivals.since(0)
    assert len(kept) == MAX_ARRIVALS
    assert kept[0].dims == (5,)
    assert arrivals.marks().requests == MAX_ARRIVALS + 5


def test_marks_of_an_activity_do_not_move_with_it():
    activity = Activity(0)
    activity.in_flight.enter(5)
    activity.batcher_ns += 7
    marks = activity.marks(10)
    activity.in_flight.leave(12)
    activity.pool_ns += 3
    assert (marks.in_flight.inside, marks.in_flight.area_ns, marks.batcher_ns, marks.pool_ns) == (1, 5, 7, 0)

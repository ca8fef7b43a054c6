from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.requests import StageTimings, Stamps, waits
from tests.doubles.requests import make_request

IN_ORDER = (
    "received",
    "read",
    "parsed",
    "prepared",
    "dispatched",
    "started",
    "copied_in",
    "computed",
    "copied_out",
    "completed",
    "rendered",
    "sent",
)


WITHIN_STAGES = ("formed", "uploaded")


def test_stamps_are_unset_but_for_the_first() -> None:
    stamps = Stamps(7)
    assert [getattr(stamps, name) for name in (*IN_ORDER, *WITHIN_STAGES)] == [7] + [0] * 13
    assert sorted(Stamps.__slots__) == sorted((*IN_ORDER, *WITHIN_STAGES))


def test_waits_are_parts_of_stages_and_zero_where_nobody_noted_them() -> None:
    stamps = Stamps(0)
    stamps.prepared, stamps.dispatched, stamps.started, stamps.copied_in = 10, 20, 30, 47
    assert waits(stamps) == (0, 0)
    stamps.formed, stamps.uploaded = 14, 40
    assert waits(stamps) == (4, 7)


@given(st.lists(st.integers(0, 10**12), min_size=len(IN_ORDER), max_size=len(IN_ORDER)).map(sorted))
def test_stages_lie_between_neighbouring_stamps_and_sum_to_the_whole(moments: list[int]) -> None:
    stamps = Stamps(0)
    for name, moment in zip(IN_ORDER, moments, strict=True):
        setattr(stamps, name, moment)
    timings = StageTimings.from_stamps(stamps)
    assert list(timings) == [late - early for early, late in pairwise(moments)]
    assert sum(timings) == stamps.sent - stamps.received
    assert min(timings) >= 0


def test_stages_bear_the_names_of_what_ends_with_their_stamp() -> None:
    assert StageTimings._fields == (
        "read",
        "parse",
        "prepare",
        "queue",
        "dispatch",
        "h2d",
        "compute",
        "d2h",
        "complete",
        "render",
        "send",
    )


def test_requests_are_compared_by_identity() -> None:
    first, second = make_request(), make_request()
    assert first == first  # noqa: PLR0124 - that is the question
    assert first != second
    assert len({first, second}) == 2

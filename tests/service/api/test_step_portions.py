from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.step_portions import portions
from service.cards import BatchingCard
from service.pipeline.steps import Call


def call(nbytes: int, member: str = "") -> Call:
    return Call((np.zeros((1, nbytes), np.uint8),), 1, member=member)


@pytest.mark.parametrize(
    ("sizes", "max_requests", "max_bytes", "expected"),
    [
        ([], 4, 100, []),
        ([1, 1, 1], 4, 100, [[1, 1, 1]]),
        ([1, 2, 3, 4, 5], 2, 100, [[1, 2], [3, 4], [5]]),
        ([4, 6, 1], 9, 10, [[4, 6], [1]]),
        ([11, 1, 11], 9, 10, [[11], [1], [11]]),
    ],
)
def test_portions(sizes: list[int], max_requests: int, max_bytes: int, expected: list[list[int]]) -> None:
    limits = BatchingCard(max_queued_requests=max_requests, max_queued_bytes=max_bytes)
    found = portions([call(size) for size in sizes], lambda _: limits)
    assert [[each.nbytes for each in portion] for portion in found] == expected


SIZES = st.integers(1, 20)
CALLS = st.lists(st.tuples(SIZES, st.sampled_from(["detector", "recognizer"])), max_size=30)
LIMITS = st.builds(BatchingCard, max_queued_requests=st.integers(1, 6), max_queued_bytes=st.integers(1, 60))


@given(CALLS, LIMITS, LIMITS)
def test_every_call_is_in_one_portion_and_every_portion_fits(
    sizes: list[tuple[int, str]], detector: BatchingCard, recognizer: BatchingCard
) -> None:
    limits = {"detector": detector, "recognizer": recognizer}
    calls = [call(*size) for size in sizes]
    found = list(portions(calls, limits.__getitem__))
    assert [each for portion in found for each in portion] == calls
    for portion in found:
        for member, limit in limits.items():
            own = [each.nbytes for each in portion if each.member == member]
            assert len(own) <= limit.max_queued_requests
            assert sum(own) <= limit.max_queued_bytes or len(own) == 1

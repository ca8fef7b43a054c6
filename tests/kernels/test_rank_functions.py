"""Keys that order classes and candidates, and the overlap of boxes: device functions against Python's own."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference_detect import overlaps

SCORES = st.floats(width=32, allow_nan=False)
INDICES = st.integers(0, (1 << 20) - 1)
CORNERS = st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4)


def by_rank(score: float, index: int) -> tuple[float, int]:
    return score, -index


@given(SCORES, INDICES, SCORES, INDICES)
def test_rank_keys_order_by_score_then_index(host: ctypes.CDLL, one: float, i: int, other: float, j: int) -> None:
    first, second = host.host_rank_key(one, i), host.host_rank_key(other, j)
    assert (first > second) == (by_rank(one, i) > by_rank(other, j))
    assert first > 0
    assert host.host_index_of_key(first) == i


@given(SCORES, INDICES, st.integers(0, 4095), SCORES, INDICES)
def test_candidate_keys(host: ctypes.CDLL, one: float, i: int, best_class: int, other: float, j: int) -> None:
    first, second = host.host_candidate_key(one, i, best_class), host.host_candidate_key(other, j, best_class)
    assert (first > second) == (by_rank(one, i) > by_rank(other, j))
    assert first > 0
    score, place = ctypes.c_float(), (ctypes.c_int * 2)()
    host.host_of_candidate_key(ctypes.c_uint64(first), ctypes.byref(score), place)
    assert (score.value, *place) == (one, i, best_class)


@given(CORNERS, CORNERS, st.floats(0, 1, width=32))
def test_overlaps(host: ctypes.CDLL, one: list[float], other: list[float], threshold: float) -> None:
    boxes = np.array([one, other], np.float32)
    pointers = [box.ctypes.data_as(ctypes.c_void_p) for box in boxes]
    got = host.host_overlaps(*pointers, ctypes.c_float(threshold))
    assert bool(got) == bool(overlaps(boxes[0], boxes[1:], threshold)[0])

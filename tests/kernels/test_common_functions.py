"""Half precision as the device functions have it, against NumPy's, over every value that there is."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

HALVES = np.arange(1 << 16, dtype=np.uint16)


def test_every_half_becomes_its_float(host: ctypes.CDLL) -> None:
    expected = HALVES.view(np.float16).astype(np.float32)
    got = np.array([host.host_to_float(int(bits)) for bits in HALVES], np.float32)
    np.testing.assert_array_equal(got, expected)


def test_every_half_survives_the_way_back(host: ctypes.CDLL) -> None:
    values = HALVES.view(np.float16).astype(np.float32)
    got = np.array([host.host_to_half(float(value)) for value in values], np.uint16).view(np.float16)
    np.testing.assert_array_equal(got, HALVES.view(np.float16))


@given(st.floats(width=32))
def test_floats_round_as_numpy_rounds(host: ctypes.CDLL, value: float) -> None:
    with np.errstate(over="ignore"):
        expected = np.float32(value).astype(np.float16)
    got = np.array(host.host_to_half(value), np.uint16).view(np.float16)
    np.testing.assert_array_equal(got, expected)


@given(st.integers(0, 0x7BFE))
def test_ties_go_to_the_even_half(host: ctypes.CDLL, lower: int) -> None:
    pair = np.array([lower, lower + 1], np.uint16).view(np.float16).astype(np.float64)
    assert host.host_to_half(float(pair.mean())) == lower + lower % 2

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bfloat16 import bfloat16_bits, bfloat16_values


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (float("inf"), 0x7F80),
        (1.00390625, 0x3F80),  # halfway between 0x3F80 and 0x3F81: to the even one
        (1.01171875, 0x3F82),  # halfway between 0x3F81 and 0x3F82: to the even one
        (3.4028235e38, 0x7F80),  # the largest float32 rounds up to infinity
    ],
)
def test_known_bits(value: float, bits: int) -> None:
    assert bfloat16_bits(np.array([value], np.float32)).tolist() == [bits]


@given(st.integers(0, 0xFFFF))
def test_values_survive(bits: int) -> None:
    values = bfloat16_values(np.array([[bits]], np.uint16))
    assert values.shape == (1, 1)
    if np.isnan(values[0, 0]):
        assert np.isnan(bfloat16_values(bfloat16_bits(values)))[0, 0]
    else:
        assert bfloat16_bits(values).tolist() == [[bits]]


@pytest.mark.parametrize("bits", [0x7F800001, 0xFFFFFFFF, 0x7FC00000])
def test_no_nan_becomes_a_number(bits: int) -> None:
    assert np.isnan(bfloat16_values(bfloat16_bits(np.array([bits], np.uint32).view(np.float32))))[0]

"""What a fill becomes for its kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.fill import BLOCK, MAX_BLOCKS, STORE_BYTES, Fill
from service.errors import DeviceError


@pytest.mark.parametrize(
    ("value", "itemsize", "word"),
    [
        (0x7F, 1, 0x7F7F7F7F),
        (0x17F, 1, 0x7F7F7F7F),
        (0xBEEF, 2, 0xBEEFBEEF),
        (0x1BEEF, 2, 0xBEEFBEEF),
        (0xDEADBEEF, 4, 0xDEADBEEF),
    ],
)
def test_patterns_are_words(value: int, itemsize: int, word: int) -> None:
    assert Fill.of(0x1000, value, itemsize, 3) == Fill(0x1000, 3 * itemsize, word)


@pytest.mark.parametrize(("address", "itemsize"), [(0x1001, 2), (0x1002, 4), (0x1000, 8), (0x1000, 3)])
def test_what_cuda_would_not_fill_is_refused(address: int, itemsize: int) -> None:
    with pytest.raises(DeviceError, match="items of 1, 2 or 4 bytes that begin at a multiple of their size"):
        Fill.of(address, 0, itemsize, 1)


@given(st.integers(0, 1 << 40))
def test_there_is_a_thread_for_every_store_or_as_many_as_there_may_be(nbytes: int) -> None:
    (blocks, _, _), block = Fill(0x1000, nbytes, 0).geometry.grid, Fill(0x1000, nbytes, 0).geometry.block
    assert block == BLOCK
    assert 1 <= blocks <= MAX_BLOCKS
    assert blocks == MAX_BLOCKS or blocks * BLOCK[0] * STORE_BYTES >= nbytes

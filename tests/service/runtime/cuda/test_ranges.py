"""Which host memory is page-locked, as the process knows it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import DeviceError
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import HostRegistration, PinnedBuffer
from service.runtime.cuda.ranges import HostRanges
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E


@pytest.mark.parametrize(
    ("address", "nbytes", "is_covered"),
    [
        (100, 50, True),
        (100, 1, True),
        (149, 1, True),
        (100, 51, False),
        (99, 2, False),
        (150, 1, False),
        (200, 100, True),
        (250, 51, False),
        (140, 70, False),
        (0, 1, False),
    ],
)
def test_what_lies_in_one_range(address: int, nbytes: int, is_covered: bool) -> None:
    ranges = HostRanges()
    ranges.add(200, 100)
    ranges.add(100, 50)
    assert ranges.covers(address, nbytes) is is_covered


@given(st.sets(st.integers(0, 40), max_size=8), st.data())
def test_as_if_every_byte_were_remembered(blocks: set[int], data: st.DataObject) -> None:
    """Blocks of 10 bytes, with a gap of 5 after each; some are taken away again."""
    removed = data.draw(st.sets(st.sampled_from(sorted(blocks)))) if blocks else set()
    ranges = HostRanges()
    for block in blocks:
        ranges.add(block * 15, 10)
    for block in removed:
        ranges.remove(block * 15, 10)
    locked = {block * 15 + offset for block in blocks - removed for offset in range(10)}
    address, nbytes = data.draw(st.integers(0, 700)), data.draw(st.integers(1, 12))
    assert ranges.covers(address, nbytes) is (set(range(address, address + nbytes)) <= locked)


def test_buffers_and_registrations_are_known_while_they_are_open(cuda: Cuda) -> None:
    array = np.zeros(100, np.uint8)
    address = array.ctypes.data
    assert not cuda.page_locked.covers(address, 100)
    with HostRegistration(cuda, array), PinnedBuffer(cuda, 64) as pinned:
        assert cuda.page_locked.covers(address, 100)
        assert cuda.page_locked.covers(pinned.address, 64)
        assert not cuda.page_locked.covers(pinned.address, 65)
        pinned_address = pinned.address
    assert not cuda.page_locked.covers(address, 1)
    assert not cuda.page_locked.covers(pinned_address, 1)


def test_what_was_not_made_is_not_known(fake: FakeCuda, cuda: Cuda) -> None:
    array = np.zeros(100, np.uint8)
    fake.inject("cudaHostRegister", E.cudaErrorMemoryAllocation)
    with pytest.raises(DeviceError):
        HostRegistration(cuda, array)
    assert not cuda.page_locked.covers(array.ctypes.data, 1)

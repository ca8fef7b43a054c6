"""`fill` against NumPy, emulated and on a GPU: every alignment, both ends, more bytes than threads store at once."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.fill import BLOCK, ENTRY, MAX_BLOCKS, STORE_BYTES, Fill
from kernels.session import DeviceSession
from service.tensors import DType
from tests.gpu.kernel_cases import device_session  # noqa: F401 - a fixture

VALUE = 0xA1B2C3D4
UNTOUCHED = 0xCD
ROUND_BYTES = MAX_BLOCKS * BLOCK[0] * STORE_BYTES


def expected(room: int, offset: int, value: int, itemsize: int, count: int) -> np.ndarray:
    memory = np.full(room, UNTOUCHED, np.uint8)
    item = np.frombuffer(value.to_bytes(4, "little")[:itemsize], np.uint8)
    memory[offset : offset + itemsize * count] = np.tile(item, count)
    return memory


def run(session: DeviceSession, room: int, offset: int, itemsize: int, count: int) -> np.ndarray:
    memory = session.empty(DType.UINT8, room)
    fill = Fill.of(memory.address + offset, VALUE, itemsize, count)
    session.run(session.kernels.prepare(ENTRY, fill.geometry, fill.arguments, stream=session.stream))
    return session.download(memory)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("nbytes", [0, 4, 12, 16, 20, 32, 36, 64, 4096, 4100])
def test_every_alignment(session, itemsize: int, nbytes: int) -> None:
    count = nbytes // itemsize
    for offset in range(0, 2 * STORE_BYTES, itemsize):
        got = run(session, nbytes + 64, offset, itemsize, count)
        np.testing.assert_array_equal(got, expected(nbytes + 64, offset, VALUE, itemsize, count), f"offset {offset}")


@pytest.mark.parametrize("nbytes", range(1, 2 * STORE_BYTES + 2))
def test_every_short_length(session, nbytes: int) -> None:
    for offset in (0, 1, 15):
        np.testing.assert_array_equal(run(session, 64, offset, 1, nbytes), expected(64, offset, VALUE, 1, nbytes))


def test_more_than_one_round(session) -> None:
    count = (ROUND_BYTES + ROUND_BYTES // 3) // 4
    got = run(session, 4 * count + 64, 20, 4, count)
    np.testing.assert_array_equal(got, expected(4 * count + 64, 20, VALUE, 4, count))

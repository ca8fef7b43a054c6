"""Copies, of rows and in batches too.

The same cases on the double and on the real device, so that the double stays honest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.copies import (
    Rows,
    copy_batch_h2d,
    copy_d2h,
    copy_h2d,
    copy_rows_d2h,
    copy_rows_h2d,
    fill,
)
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Stream

MIB = 1 << 20


@pytest.mark.parametrize("nbytes", [1, 255, 150_528, 3 * MIB + 1])
def test_round_trip(cuda: Cuda, stream: Stream, nbytes: int) -> None:
    with PinnedBuffer(cuda, 2 * nbytes) as pinned, DeviceBuffer(cuda, nbytes) as buffer:
        source, target = pinned.host(np.uint8, (2, nbytes))
        source[:] = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
        target[:] = 0
        copy_h2d(cuda, buffer.address, pinned.address, nbytes, stream=stream)
        copy_d2h(cuda, pinned.address + nbytes, buffer.address, nbytes, stream=stream)
        stream.sync()
        assert np.array_equal(source, target)


def test_nothing_to_copy(cuda: Cuda, stream: Stream) -> None:
    with PinnedBuffer(cuda, 8) as pinned, DeviceBuffer(cuda, 8) as buffer:
        copy_h2d(cuda, buffer.address, pinned.address, 0, stream=stream)
        copy_batch_h2d(cuda, [], stream=stream)
        stream.sync()


def test_rows_are_padded(cuda: Cuda, stream: Stream) -> None:
    with PinnedBuffer(cuda, 15 + 32 + 15) as pinned, DeviceBuffer(cuda, 32) as buffer:
        source, padded, back = (pinned.host(np.uint8, (n,), at) for n, at in ((15, 0), (32, 15), (15, 47)))
        source[:], back[:] = np.arange(15), 99
        fill(cuda, buffer.address, 7, 32, stream=stream)
        copy_rows_h2d(cuda, Rows(buffer.address, 8, pinned.address, 5, 5, 3), stream=stream)
        copy_d2h(cuda, pinned.address + 15, buffer.address, 32, stream=stream)
        copy_rows_d2h(cuda, Rows(buffer.address, 8, pinned.address + 47, 5, 4, 3), stream=stream)
        stream.sync()
        expected = np.full((4, 8), 7)
        expected[:3, :5] = np.arange(15).reshape(3, 5)
        assert padded.reshape(4, 8).tolist() == expected.tolist()
        assert back.reshape(3, 5)[:, :4].tolist() == expected[:3, :4].tolist()
        assert (back.reshape(3, 5)[:, 4] == 99).all()


@pytest.mark.parametrize("copy_rows", [copy_rows_h2d, copy_rows_d2h])
def test_rows_longer_than_their_pitch(cuda: Cuda, stream: Stream, copy_rows: Callable[..., None]) -> None:
    with (
        PinnedBuffer(cuda, 64) as pinned,
        DeviceBuffer(cuda, 64) as buffer,
        pytest.raises(DeviceError, match=r"^cudaErrorInvalidPitchValue: invalid pitch argument, in cudaMemcpy2DAsync"),
    ):
        copy_rows(cuda, Rows(buffer.address, 4, pinned.address, 8, 8, 2), stream=stream)


@pytest.mark.parametrize("pieces", [1, 2, 17])
@pytest.mark.parametrize("is_batched", [True, False], ids=["batched", "plain"])
def test_batch_of_copies(cuda: Cuda, stream: Stream, pieces: int, is_batched: bool) -> None:
    if not is_batched:
        cuda.batch_copy_attributes()
        cuda.give_up_batch_copy()
    with PinnedBuffer(cuda, 2 * pieces * 100) as pinned, DeviceBuffer(cuda, pieces * 100) as buffer:
        source, target = pinned.host(np.uint8, (2, pieces, 100))
        source[:] = np.random.default_rng(pieces).integers(0, 256, source.shape, np.uint8)
        copies = [(buffer.address + 100 * (pieces - 1 - i), pinned.address + 100 * i, 100) for i in range(pieces)]
        copy_batch_h2d(cuda, copies, stream=stream)
        copy_d2h(cuda, pinned.address + pieces * 100, buffer.address, pieces * 100, stream=stream)
        stream.sync()
        assert np.array_equal(target, source[::-1])

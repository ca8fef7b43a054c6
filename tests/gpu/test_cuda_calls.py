"""Prepared calls do what the direct ones do, on the double and on the real device."""

from __future__ import annotations

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.calls import run_calls
from service.runtime.cuda.copies import fill, prepare_d2h, prepare_h2d
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.graph import capture
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Event, Stream


def test_a_round_trip_over_two_streams(cuda: Cuda, stream: Stream) -> None:
    with (
        PinnedBuffer(cuda, 512) as pinned,
        DeviceBuffer(cuda, 256) as buffer,
        Event(cuda, timing_enabled=False, blocking_sync=True) as copied,
        Stream(cuda) as second,
    ):
        there, back = pinned.host(np.uint8, (2, 256))
        there[:] = np.arange(256)
        back[:] = 0
        calls = (
            prepare_h2d(cuda, buffer.address, pinned.address, 256, stream=stream),
            copied.prepare_record(stream=stream),
            second.prepare_wait(copied),
            prepare_d2h(cuda, pinned.address + 256, buffer.address, 256, stream=second),
        )
        for _ in range(2):
            run_calls(cuda, calls)
            second.sync()
            np.testing.assert_array_equal(back, there)
            there[:] = there[::-1].copy()


def test_a_graph(cuda: Cuda, stream: Stream) -> None:
    with PinnedBuffer(cuda, 8) as pinned, DeviceBuffer(cuda, 8) as buffer:
        host = pinned.host(np.uint8, (8,))

        def enqueue() -> bool:
            fill(cuda, buffer.address, 7, 8, stream=stream)
            return True

        with capture(cuda, enqueue, stream=stream) as graph:
            fill(cuda, buffer.address, 1, 8, stream=stream)
            copy = prepare_d2h(cuda, pinned.address, buffer.address, 8, stream=stream)
            run_calls(cuda, (graph.prepare_launch(stream=stream), copy))
            stream.sync()
            assert host.tolist() == [7] * 8


def test_the_first_failure_ends_it(cuda: Cuda, stream: Stream) -> None:
    with (
        PinnedBuffer(cuda, 8) as pinned,
        Event(cuda, timing_enabled=False, blocking_sync=False) as never_recorded,
    ):
        broken = prepare_h2d(cuda, 0, pinned.address, 8, stream=stream)
        with pytest.raises(DeviceError, match="cudaErrorInvalidValue: invalid argument, in cudaMemcpyAsync h2d"):
            run_calls(cuda, (broken, never_recorded.prepare_record(stream=stream)))
        assert never_recorded.is_done()

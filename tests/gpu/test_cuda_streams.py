"""Streams and events.

The same cases on the double and on the real device, so that the double stays honest.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.copies import copy_d2h, fill
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Event, Stream

MIB = 1 << 20


def test_stream_handles(cuda: Cuda) -> None:
    with Stream(cuda) as first, Stream(cuda, priority=-1) as second:
        assert first.handle not in {0, 1, 2, second.handle}
        assert first.handle == int(first.native)
        first.sync()
        second.sync()


@pytest.mark.parametrize("blocking_sync", [False, True])
def test_event_marks_work(cuda: Cuda, stream: Stream, blocking_sync: bool) -> None:
    with DeviceBuffer(cuda, MIB) as buffer, Event(cuda, timing_enabled=False, blocking_sync=blocking_sync) as event:
        assert event.is_done(), "an event that was never recorded counts as done"
        fill(cuda, buffer.address, 1, MIB, stream=stream)
        event.record(stream=stream)
        event.sync()
        assert event.is_done()


def test_event_comes_to_be_done(cuda: Cuda, stream: Stream) -> None:
    with DeviceBuffer(cuda, MIB) as buffer, Event(cuda, timing_enabled=False, blocking_sync=False) as event:
        fill(cuda, buffer.address, 1, MIB, stream=stream)
        event.record(stream=stream)
        while not event.is_done():
            pass


def test_elapsed_time(cuda: Cuda, stream: Stream) -> None:
    with (
        DeviceBuffer(cuda, MIB) as buffer,
        Event(cuda, timing_enabled=True, blocking_sync=False) as begin,
        Event(cuda, timing_enabled=True, blocking_sync=False) as end,
    ):
        begin.record(stream=stream)
        fill(cuda, buffer.address, 1, MIB, stream=stream)
        end.record(stream=stream)
        end.sync()
        assert 0 < end.elapsed_ns_since(begin) < 1_000_000_000


def test_elapsed_time_needs_both_marks(cuda: Cuda, stream: Stream) -> None:
    with (
        Event(cuda, timing_enabled=True, blocking_sync=False) as begin,
        Event(cuda, timing_enabled=True, blocking_sync=False) as end,
    ):
        end.record(stream=stream)
        stream.sync()
        with pytest.raises(DeviceError, match=r"^cudaErrorInvalidResourceHandle: .*, in cudaEventElapsedTime$"):
            end.elapsed_ns_since(begin)


@pytest.mark.parametrize("timed", ["neither", "earlier"])
def test_elapsed_time_needs_timing(cuda: Cuda, timed: str) -> None:
    with (
        Event(cuda, timing_enabled=timed == "earlier", blocking_sync=False) as begin,
        Event(cuda, timing_enabled=False, blocking_sync=False) as end,
        pytest.raises(DeviceError, match="timing_enabled"),
    ):
        end.elapsed_ns_since(begin)


def test_wait_orders_streams(cuda: Cuda, stream: Stream) -> None:
    size = 16 * MIB
    with (
        Stream(cuda) as second,
        DeviceBuffer(cuda, size) as buffer,
        PinnedBuffer(cuda, size) as pinned,
        Event(cuda, timing_enabled=False, blocking_sync=False) as filled,
    ):
        for value in (1, 2, 3):
            fill(cuda, buffer.address, value, size, stream=stream)
            filled.record(stream=stream)
            second.wait(filled)
            copy_d2h(cuda, pinned.address, buffer.address, size, stream=second)
            second.sync()
            assert (pinned.host(np.uint8, (size,)) == value).all()
        stream.sync()

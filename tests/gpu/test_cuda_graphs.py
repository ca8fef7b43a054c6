"""Captures and replays.

The same cases on the double and on the real device, so that the double stays honest.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.copies import copy_d2h, copy_h2d, fill
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.graph import CaptureFailed, Graph, capture
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Stream


class Doubler:
    """Device work for captures: copies `pinned_in` to the device and back to `pinned_out`, both `uint8[1024]`."""

    def __init__(self, cuda: Cuda, stream: Stream) -> None:
        self.cuda, self.stream = cuda, stream
        self.pinned_in, self.pinned_out = PinnedBuffer(cuda, 1024), PinnedBuffer(cuda, 1024)
        self.device = DeviceBuffer(cuda, 1024)
        self.host_in = self.pinned_in.host(np.uint8, (1024,))
        self.host_out = self.pinned_out.host(np.uint8, (1024,))
        self.runs = 0

    def enqueue(self) -> bool:
        self.runs += 1
        copy_h2d(self.cuda, self.device.address, self.pinned_in.address, 1024, stream=self.stream)
        copy_d2h(self.cuda, self.pinned_out.address, self.device.address, 1024, stream=self.stream)
        return True

    def assert_replays(self, graph: Graph, value: int) -> None:
        self.host_in[:], self.host_out[:] = value, 0
        graph.launch(stream=self.stream)
        self.stream.sync()
        assert (self.host_out == value).all()

    def close(self) -> None:
        for buffer in (self.pinned_in, self.pinned_out, self.device):
            buffer.close()


@pytest.fixture
def work(cuda: Cuda, stream: Stream):
    work = Doubler(cuda, stream)
    yield work
    work.close()


def test_replay(cuda: Cuda, work: Doubler) -> None:
    with capture(cuda, work.enqueue, stream=work.stream) as graph:
        assert graph.node_count == 2
        assert graph.device_bytes >= 0
        assert cuda.live.graphs == 1
        assert work.runs == 2, "once for real, once under capture"
        for value in (1, 2, 3):
            work.assert_replays(graph, value)
    assert cuda.live.graphs == 0
    with pytest.raises(DeviceError, match="Graph is used after it was closed"):
        graph.launch(stream=work.stream)


def test_graphs_of_one_stream(cuda: Cuda, work: Doubler) -> None:
    with (
        capture(cuda, work.enqueue, stream=work.stream) as first,
        capture(cuda, work.enqueue, stream=work.stream) as second,
    ):
        work.assert_replays(second, 4)
        work.assert_replays(first, 5)


class Unfit:
    """Enqueues whose second run, the one under capture, breaks a rule."""

    def __init__(self, cuda: Cuda, work: Doubler) -> None:
        self.cuda, self.work = cuda, work

    def allocates(self) -> bool:
        self.work.enqueue()
        DeviceBuffer(self.cuda, 256).close()
        return True

    def pins(self) -> bool:
        self.work.enqueue()
        PinnedBuffer(self.cuda, 256).close()
        return True

    def syncs(self) -> bool:
        self.work.enqueue()
        self.work.stream.sync()
        return True

    def syncs_and_hides_it(self) -> bool:
        self.work.enqueue()
        try:
            self.work.stream.sync()
        except DeviceError:
            return True
        return True

    def syncs_and_says_no(self) -> bool:
        return self.syncs_and_hides_it() and self.work.runs == 1

    def says_no(self) -> bool:
        return self.work.enqueue() and self.work.runs == 1

    def gives_no_work(self) -> bool:
        return True


REASONS = {
    "allocates": "cudaErrorStreamCaptureUnsupported: .*, in cudaMalloc of 256 bytes; cudaErrorStreamCaptureInvalidated",
    "pins": "cudaErrorStreamCaptureUnsupported: .*, in cudaHostAlloc of 256 bytes; cudaErrorStreamCaptureInvalidated",
    "syncs": "cudaErrorStreamCaptureUnsupported: .*, in cudaStreamSynchronize; cudaErrorStreamCaptureInvalidated",
    "syncs_and_hides_it": "^cudaErrorStreamCaptureInvalidated: .*, in cudaStreamEndCapture",
    "syncs_and_says_no": "^enqueue failed under capture; cudaErrorStreamCaptureInvalidated: .*EndCapture$",
    "says_no": "^enqueue failed under capture$",
    "gives_no_work": "^enqueue gave no work to the captured stream$",
}


@pytest.mark.parametrize("way", REASONS)
def test_capture_fails_and_leaves_the_stream_usable(cuda: Cuda, work: Doubler, way: str) -> None:
    live = cuda.live
    with pytest.raises(CaptureFailed, match=REASONS[way]) as raised:
        capture(cuda, getattr(Unfit(cuda, work), way), stream=work.stream)
    assert raised.value.reason == str(raised.value)
    assert cuda.live == live
    assert int(cuda.api.cudaPeekAtLastError()[0]) == 0
    with capture(cuda, work.enqueue, stream=work.stream) as graph:
        work.assert_replays(graph, 6)


def test_capture_needs_a_run_that_works(cuda: Cuda, work: Doubler) -> None:
    with pytest.raises(CaptureFailed, match="before the capture"):
        capture(cuda, lambda: False, stream=work.stream)


def test_a_bug_in_enqueue_is_no_reason_but_ends_the_capture(cuda: Cuda, work: Doubler) -> None:
    def enqueue() -> bool:
        work.enqueue()
        if work.runs == 2:
            raise ZeroDivisionError
        return True

    with pytest.raises(ZeroDivisionError):
        capture(cuda, enqueue, stream=work.stream)
    with capture(cuda, work.enqueue, stream=work.stream) as graph:
        work.assert_replays(graph, 7)


def test_capture_restricts_its_own_thread_alone(cuda: Cuda, work: Doubler) -> None:
    def other_lane() -> None:
        cuda.use_device(0)
        with Stream(cuda) as stream, DeviceBuffer(cuda, 1024) as buffer, PinnedBuffer(cuda, 1024):
            fill(cuda, buffer.address, 0, 1024, stream=stream)
            stream.sync()

    def enqueue() -> bool:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other_lane).result()
        return work.enqueue()

    with capture(cuda, enqueue, stream=work.stream) as graph:
        work.assert_replays(graph, 8)


def test_captures_take_turns(cuda: Cuda) -> None:
    barrier = threading.Barrier(4, timeout=60)

    def lane(value: int) -> None:
        cuda.use_device(0)
        with Stream(cuda) as stream:
            work = Doubler(cuda, stream)
            barrier.wait()
            with capture(cuda, work.enqueue, stream=stream) as graph:
                work.assert_replays(graph, value)
            work.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(lane, value) for value in range(1, 5)]:
            done.result()

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.errors import DeviceError, ExecutionFailed
from service.runtime.cuda.copies import fill
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.graph import CaptureFailed, capture
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Stream
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_cuda_types import cudaStreamCaptureMode


@pytest.fixture
def enqueue(cuda: Cuda, stream: Stream):
    buffer = DeviceBuffer(cuda, 8)

    def enqueue() -> bool:
        fill(cuda, buffer.address, 1, 8, stream=stream)
        return True

    return enqueue


def natives(fake: FakeCuda) -> dict[str, int]:
    return {kind: count for kind, count in fake.live_objects().items() if kind in {"graph", "exec"}}


def test_capture_follows_the_recipe(
    fake: FakeCuda, cuda: Cuda, stream: Stream, enqueue: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    begin = fake.cudaStreamBeginCapture
    monkeypatch.setattr(
        fake, "cudaStreamBeginCapture", lambda stream, mode: (modes.append(mode), begin(stream, mode))[1]
    )

    def watched() -> bool:
        assert cuda.capture_lock.locked() == fake.is_capturing(stream.native)
        return enqueue()

    with capture(cuda, watched, stream=stream) as graph:
        assert modes == [cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal]
        assert natives(fake) == {"exec": 1}, "the partial graph must be destroyed"
        assert fake.calls["cudaGraphUpload"] == 1
        assert fake.calls["cudaDeviceSynchronize"] == 0
        assert graph.device_bytes == fake.graph_bytes
        assert not cuda.capture_lock.locked()
    assert natives(fake) == {}


def test_memory_that_others_free_meanwhile(fake: FakeCuda, cuda: Cuda, stream: Stream, enqueue, monkeypatch) -> None:
    given = iter([(E.cudaSuccess, 100, 1000), (E.cudaSuccess, 300, 1000)])
    monkeypatch.setattr(fake, "cudaMemGetInfo", lambda: next(given))
    with capture(cuda, enqueue, stream=stream) as graph:
        assert graph.device_bytes == 0


@pytest.mark.parametrize("call", ["cudaGraphInstantiate", "cudaGraphUpload", "cudaStreamSynchronize"])
def test_failure_after_the_capture(fake: FakeCuda, cuda: Cuda, stream: Stream, enqueue, call: str) -> None:
    fake.inject(call, E.cudaErrorMemoryAllocation, after=int(call == "cudaStreamSynchronize"))
    with pytest.raises(CaptureFailed, match=f"^cudaErrorMemoryAllocation: out of memory, in {call}$"):
        capture(cuda, enqueue, stream=stream)
    assert natives(fake) == {}
    assert cuda.live.graphs == 0
    assert fake.cudaPeekAtLastError() == (E.cudaSuccess,)
    capture(cuda, enqueue, stream=stream).close()


@pytest.mark.parametrize("call", ["cudaStreamBeginCapture", "cudaMemGetInfo", "cudaGraphGetNodes"])
def test_failure_beside_the_capture(fake: FakeCuda, cuda: Cuda, stream: Stream, enqueue, call: str) -> None:
    fake.inject(call, E.cudaErrorInvalidValue)
    with pytest.raises(DeviceError, match=f"in {call}$"):
        capture(cuda, enqueue, stream=stream)
    assert natives(fake) == {}
    capture(cuda, enqueue, stream=stream).close()


@pytest.mark.parametrize(("call", "after"), [("cudaGraphDestroy", 0), ("cudaMemGetInfo", 1)])
def test_failure_behind_the_capture_leaves_no_executable_graph(
    fake: FakeCuda, cuda: Cuda, stream: Stream, enqueue, call: str, after: int
) -> None:
    fake.inject(call, E.cudaErrorInvalidValue, after=after)
    with pytest.raises(DeviceError, match=f"in {call}$"):
        capture(cuda, enqueue, stream=stream)
    assert "exec" not in natives(fake)
    capture(cuda, enqueue, stream=stream).close()


@pytest.mark.parametrize("call", ["cudaMemsetAsync", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphUpload"])
def test_sticky_errors_are_no_reason_to_go_on(fake: FakeCuda, cuda: Cuda, stream: Stream, enqueue, call: str) -> None:
    fake.inject(call, E.cudaErrorIllegalAddress, after=int(call == "cudaMemsetAsync"))
    with pytest.raises(DeviceError, match=f"^cudaErrorIllegalAddress: .*, in {call}$") as raised:
        capture(cuda, enqueue, stream=stream)
    assert raised.value.is_sticky
    assert not cuda.capture_lock.locked()


def test_fault_in_the_run_before(fake: FakeCuda, cuda: Cuda, stream: Stream) -> None:
    fake.fault_in_next_kernel()
    with pytest.raises(DeviceError, match="illegal memory access was encountered, in cudaStreamSynchronize"):
        capture(cuda, lambda: not fake.launch_kernel(stream.native, lambda: None), stream=stream)


def test_what_the_library_says_is_the_reason(fake: FakeCuda, cuda: Cuda, stream: Stream) -> None:
    def enqueue() -> bool:
        if fake.is_capturing(stream.native):
            raise ExecutionFailed("the plugin NMS allocates while it runs")
        return True

    with pytest.raises(CaptureFailed, match=r"^the plugin NMS allocates while it runs$"):
        capture(cuda, enqueue, stream=stream)
    assert natives(fake) == {}
    assert not fake.is_capturing(stream.native)


def test_what_the_library_leaves_behind_is_cleared(fake: FakeCuda, cuda: Cuda, stream: Stream) -> None:
    def enqueue() -> bool:
        if fake.is_capturing(stream.native):
            fake.cudaStreamWaitEvent(stream.native, 12345, 0)
            return False
        return True

    with pytest.raises(CaptureFailed):
        capture(cuda, enqueue, stream=stream)
    assert fake.cudaPeekAtLastError() == (E.cudaSuccess,)

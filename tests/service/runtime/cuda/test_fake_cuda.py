"""The rules of the double that the cases shared with the real device do not reach."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_cuda_types import cudaMemcpyKind, cudaStreamCaptureMode

H2D, D2H = cudaMemcpyKind.cudaMemcpyHostToDevice, cudaMemcpyKind.cudaMemcpyDeviceToHost
GLOBAL = cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
LOCAL = cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
RELAXED = cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed


def new_stream(fake: FakeCuda):
    return fake.cudaStreamCreateWithPriority(fake.cudaStreamNonBlocking, 0)[1]


def elsewhere(call, *arguments):
    """What a call gives on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *arguments).result()


@pytest.mark.parametrize("none", [0, 1, 2, None])
def test_legacy_stream_is_refused(fake: FakeCuda, none: int | None) -> None:
    address = fake.cudaMalloc(8)[1]
    assert fake.cudaMemsetAsync(address, 0, 8, none) == (E.cudaErrorInvalidResourceHandle,)
    assert fake.cudaStreamSynchronize(none) == (E.cudaErrorInvalidResourceHandle,)
    assert fake.violations == ["the legacy stream is used"] * 2


def test_legacy_stream_breaks_a_capture(fake: FakeCuda) -> None:
    stream, address = new_stream(fake), fake.cudaMalloc(8)[1]
    fake.cudaStreamBeginCapture(stream, LOCAL)
    assert fake.cudaMemsetAsync(address, 0, 8, 0) == (E.cudaErrorStreamCaptureImplicit,)
    assert fake.cudaMemsetAsync(address, 0, 8, stream) == (E.cudaErrorStreamCaptureInvalidated,)
    assert fake.cudaStreamEndCapture(stream) == (E.cudaErrorStreamCaptureInvalidated, None)


def test_streams_that_depend_on_the_legacy_one_are_refused(fake: FakeCuda) -> None:
    assert fake.cudaStreamCreateWithPriority(0, 0) == (E.cudaErrorInvalidValue, None)
    assert fake.violations


@pytest.mark.parametrize(
    ("mode", "is_mine", "code"),
    [
        (GLOBAL, True, E.cudaErrorStreamCaptureUnsupported),
        (GLOBAL, False, E.cudaErrorStreamCaptureUnsupported),
        (LOCAL, True, E.cudaErrorStreamCaptureUnsupported),
        (LOCAL, False, E.cudaSuccess),
        (RELAXED, True, E.cudaSuccess),
        (RELAXED, False, E.cudaSuccess),
    ],
)
@pytest.mark.parametrize("call", ["cudaMalloc", "cudaDeviceSynchronize"])
def test_whose_unsafe_calls_a_capture_forbids(fake: FakeCuda, call: str, mode, is_mine: bool, code: E) -> None:
    stream = new_stream(fake)
    fake.cudaStreamBeginCapture(stream, mode)
    arguments = (8,) if call == "cudaMalloc" else ()
    result = getattr(fake, call)(*arguments) if is_mine else elsewhere(getattr(fake, call), *arguments)
    assert result[0] is code
    ended = E.cudaErrorStreamCaptureInvalidated if code else E.cudaSuccess
    assert fake.cudaStreamEndCapture(stream)[0] is ended


@pytest.mark.parametrize(("mode", "code"), [(LOCAL, E.cudaErrorStreamCaptureWrongThread), (RELAXED, E.cudaSuccess)])
def test_end_on_another_thread(fake: FakeCuda, mode, code: E) -> None:
    stream = new_stream(fake)
    fake.cudaStreamBeginCapture(stream, mode)
    assert elsewhere(fake.cudaStreamEndCapture, stream)[0] is code
    assert fake.is_capturing(stream) is bool(code)


def test_end_without_begin_and_begin_twice(fake: FakeCuda) -> None:
    stream = new_stream(fake)
    assert fake.cudaStreamEndCapture(stream) == (E.cudaErrorIllegalState, None)
    fake.cudaStreamBeginCapture(stream, LOCAL)
    assert fake.cudaStreamBeginCapture(stream, LOCAL) == (E.cudaErrorIllegalState,)


def test_events_and_captures(fake: FakeCuda) -> None:
    stream, other = new_stream(fake), new_stream(fake)
    inside, outside = (fake.cudaEventCreateWithFlags(0)[1] for _ in range(2))
    fake.cudaEventRecord(outside, other)
    fake.cudaStreamBeginCapture(stream, RELAXED)
    fake.cudaEventRecord(inside, stream)
    assert fake.cudaEventQuery(inside) == (E.cudaErrorCapturedEvent,)
    assert fake.cudaEventSynchronize(inside) == (E.cudaErrorCapturedEvent,)
    assert fake.cudaStreamWaitEvent(other, inside, 0) == (E.cudaErrorCapturedEvent,)
    assert fake.cudaStreamWaitEvent(stream, outside, 0) == (E.cudaErrorStreamCaptureIsolation,)
    assert fake.cudaStreamEndCapture(stream) == (E.cudaErrorStreamCaptureInvalidated, None)


def test_captured_work_runs_only_when_launched(fake: FakeCuda) -> None:
    stream, runs = new_stream(fake), []
    fake.cudaStreamBeginCapture(stream, LOCAL)
    fake.launch_kernel(stream, lambda: runs.append("kernel"))
    graph = fake.cudaStreamEndCapture(stream)[1]
    exec_ = fake.cudaGraphInstantiate(graph, 0)[1]
    fake.cudaGraphDestroy(graph)
    assert runs == []
    fake.cudaGraphLaunch(exec_, stream)
    fake.cudaGraphLaunch(exec_, stream)
    assert runs == ["kernel"] * 2
    fake.cudaGraphExecDestroy(exec_)
    assert fake.cudaGraphLaunch(exec_, stream) == (E.cudaErrorInvalidResourceHandle,)
    assert fake.cudaGraphDestroy(graph) == (E.cudaErrorInvalidResourceHandle,)
    assert len(fake.violations) == 2


def test_graphs_need_memory() -> None:
    fake = FakeCuda(total_bytes=1000)
    stream = new_stream(fake)
    fake.cudaStreamBeginCapture(stream, LOCAL)
    graph = fake.cudaStreamEndCapture(stream)[1]
    assert fake.cudaGraphInstantiate(graph, 0) == (E.cudaErrorMemoryAllocation, None)


@pytest.mark.parametrize(("allocate", "free"), [("cudaMalloc", "cudaFree"), ("cudaHostAlloc", "cudaFreeHost")])
def test_double_free(fake: FakeCuda, allocate: str, free: str) -> None:
    address = getattr(fake, allocate)(*((8, 0) if allocate == "cudaHostAlloc" else (8,)))[1]
    assert getattr(fake, free)(address + 1) == (E.cudaErrorInvalidValue,)
    assert fake.violations == []
    assert getattr(fake, free)(address) == (E.cudaSuccess,)
    assert getattr(fake, free)(address) == (E.cudaErrorInvalidValue,)
    assert fake.violations == [f"the memory at {address:#x} was freed twice"]


def copies(fake: FakeCuda) -> dict[str, tuple[int, int, int, cudaMemcpyKind]]:
    """Copies that each break one rule: destination, source, size, direction."""
    device, freed = fake.cudaMalloc(8)[1], fake.cudaMalloc(8)[1]
    pinned, unpinned = fake.cudaHostAlloc(8, 0)[1], fake.cudaHostAlloc(8, 0)[1]
    fake.cudaFree(freed)
    fake.cudaFreeHost(unpinned)
    return {
        "used by a copy after": (freed, pinned, 8, H2D),
        "used after it was freed": (device, unpinned, 8, H2D),
        "leaves the device memory": (device, pinned, 9, H2D),
        "leaves the pinned memory": (pinned + 4, device, 8, D2H),
        "given as a host address": (device, device, 8, H2D),
    }


@pytest.mark.parametrize("rule", copies(FakeCuda()))
def test_copies_outside_memory(fake: FakeCuda, rule: str) -> None:
    stream = new_stream(fake)
    assert fake.cudaMemcpyAsync(*copies(fake)[rule], stream) == (E.cudaErrorInvalidValue,)
    assert len(fake.violations) == 1
    assert rule in fake.violations[0]


def test_copy_to_nowhere(fake: FakeCuda) -> None:
    pinned = fake.cudaHostAlloc(8, 0)[1]
    assert fake.cudaMemcpyAsync(pinned, pinned, 8, H2D, new_stream(fake)) == (E.cudaErrorInvalidValue,)
    assert fake.cudaHostUnregister(pinned) == (E.cudaErrorHostMemoryNotRegistered,)


def test_memory_freed_under_a_graph_is_a_fault(fake: FakeCuda) -> None:
    stream, device, pinned = new_stream(fake), fake.cudaMalloc(8)[1], fake.cudaHostAlloc(8, 0)[1]
    fake.cudaStreamBeginCapture(stream, LOCAL)
    fake.cudaMemcpyAsync(device, pinned, 8, H2D, stream)
    exec_ = fake.cudaGraphInstantiate(fake.cudaStreamEndCapture(stream)[1], 0)[1]
    fake.cudaFreeHost(pinned)
    assert fake.cudaGraphLaunch(exec_, stream) == (E.cudaSuccess,)
    assert fake.cudaStreamSynchronize(stream) == (E.cudaErrorIllegalAddress,)
    assert fake.cudaMalloc(8) == (E.cudaErrorIllegalAddress, None)
    assert fake.cudaGetLastError() == (E.cudaErrorIllegalAddress,)


@pytest.mark.parametrize(
    "change", [{"attrs": []}, {"count": 3}, {"attrsIdxs": [1]}, {"numAttrs": 3}, {"order": False}], ids=str
)
def test_batches_of_copies_are_checked(fake: FakeCuda, change: dict[str, object]) -> None:
    stream, device, pinned = new_stream(fake), fake.cudaMalloc(8)[1], fake.cudaHostAlloc(8, 0)[1]
    attributes = fake.cudaMemcpyAttributes()
    if change.pop("order", True):
        attributes.srcAccessOrder = fake.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream
    given = {
        "dsts": [device, device + 4],
        "srcs": [pinned, pinned + 4],
        "sizes": [4, 4],
        "count": 2,
        "attrs": [attributes],
        "attrsIdxs": [0],
        "numAttrs": 1,
        "stream": stream,
    }
    is_broken = bool(change) or not attributes.srcAccessOrder
    assert is_broken
    assert fake.cudaMemcpyBatchAsync(**{**given, **change}) == (E.cudaErrorInvalidValue,)


def test_events_stay_on_their_device() -> None:
    fake = FakeCuda(device_count=2)
    event = fake.cudaEventCreateWithFlags(0)[1]
    fake.cudaSetDevice(1)
    assert fake.cudaEventRecord(event, new_stream(fake)) == (E.cudaErrorInvalidResourceHandle,)


def test_deferred_work_runs_in_the_order_of_waits() -> None:
    fake, order = FakeCuda(is_deferred=True), []
    first, second = new_stream(fake), new_stream(fake)
    event = fake.cudaEventCreateWithFlags(0)[1]
    fake.launch_kernel(first, lambda: order.append("before"))
    fake.cudaEventRecord(event, first)
    fake.launch_kernel(first, lambda: order.append("later"))
    fake.cudaStreamWaitEvent(second, event, 0)
    fake.launch_kernel(second, lambda: order.append("after"))
    assert order == []
    fake.cudaStreamSynchronize(second)
    assert order == ["before", "after"]
    fake.cudaDeviceSynchronize()
    assert order == ["before", "after", "later"]


def test_fresh_and_freed_memory_is_poison(fake: FakeCuda) -> None:
    stream, device = new_stream(fake), fake.cudaMalloc(8)[1]
    back = np.zeros(8, np.uint8)
    fake.cudaMemcpyAsync(back.ctypes.data, device, 8, D2H, stream)
    assert (back == 0xCD).all()
    assert fake.live_objects() == {"stream": 1, "device": 1}


def test_injected_failures_come_once_and_in_turn(fake: FakeCuda) -> None:
    fake.inject("cudaMalloc", E.cudaErrorMemoryAllocation, after=1)
    assert [fake.cudaMalloc(8)[0] for _ in range(3)] == [E.cudaSuccess, E.cudaErrorMemoryAllocation, E.cudaSuccess]

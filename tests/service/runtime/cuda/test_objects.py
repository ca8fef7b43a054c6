"""What only the double can show: failures on demand, unfinished work, and what a real device would not report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.copies import copy_batch_h2d, copy_d2h, copy_h2d, fill
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.memory import DeviceBuffer, HostRegistration, PinnedBuffer
from service.runtime.cuda.stream import Event, Stream
from tests.doubles.clock import ManualClock
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E


@pytest.mark.parametrize(
    ("call", "make"),
    [
        ("cudaStreamCreateWithPriority", Stream),
        ("cudaEventCreateWithFlags", lambda cuda: Event(cuda, timing_enabled=True, blocking_sync=True)),
        ("cudaHostAlloc", lambda cuda: PinnedBuffer(cuda, 8)),
        ("cudaMalloc", lambda cuda: DeviceBuffer(cuda, 8)),
        ("cudaHostRegister", lambda cuda: HostRegistration(cuda, np.zeros(8))),
    ],
)
def test_what_was_not_made_does_not_count(
    fake: FakeCuda, cuda: Cuda, call: str, make: Callable[[Cuda], object]
) -> None:
    fake.inject(call, E.cudaErrorMemoryAllocation)
    with pytest.raises(DeviceError, match=f"out of memory, in {call}"):
        make(cuda)
    assert cuda.live == LiveCounts()


def test_what_was_not_freed_goes_on_counting(fake: FakeCuda, cuda: Cuda) -> None:
    buffer = DeviceBuffer(cuda, 8)
    fake.inject("cudaFree", E.cudaErrorInvalidValue)
    with pytest.raises(DeviceError, match="in cudaFree"):
        buffer.close()
    buffer.close()
    assert cuda.live == LiveCounts(device_bytes=8)
    assert fake.calls["cudaFree"] == 1


@pytest.mark.parametrize(
    ("timing_enabled", "blocking_sync", "flags"),
    [(True, False, 0), (True, True, 1), (False, False, 2), (False, True, 3)],
)
def test_event_flags(fake: FakeCuda, cuda: Cuda, timing_enabled: bool, blocking_sync: bool, flags: int) -> None:
    with Event(cuda, timing_enabled=timing_enabled, blocking_sync=blocking_sync) as event:
        assert fake._handles[int(event.native)].flags == flags


def test_elapsed_time_is_exact() -> None:
    clock = ManualClock()
    cuda = Cuda(FakeCuda(clock=clock))
    with Stream(cuda) as stream:
        first, second = (Event(cuda, timing_enabled=True, blocking_sync=False) for _ in range(2))
        first.record(stream=stream)
        clock.now_ns += 123_456
        second.record(stream=stream)
        assert second.elapsed_ns_since(first) == 123_456
        assert first.elapsed_ns_since(second) == -123_456


def test_unfinished_work_is_not_done() -> None:
    cuda = Cuda(FakeCuda(is_deferred=True))
    with Stream(cuda) as stream, PinnedBuffer(cuda, 4) as pinned, DeviceBuffer(cuda, 4) as buffer:
        event = Event(cuda, timing_enabled=True, blocking_sync=False)
        host = pinned.host(np.uint8, (4,))
        host[:] = 0
        fill(cuda, buffer.address, 9, 4, stream=stream)
        copy_d2h(cuda, pinned.address, buffer.address, 4, stream=stream)
        event.record(stream=stream)
        assert not event.is_done()
        assert int(cuda.api.cudaPeekAtLastError()[0]) == 0
        with pytest.raises(DeviceError, match="cudaErrorNotReady"):
            event.elapsed_ns_since(event)
        assert host.tolist() == [0] * 4
        event.sync()
        assert event.is_done()
        assert host.tolist() == [9] * 4
        event.close()


def test_failed_query(fake: FakeCuda, cuda: Cuda) -> None:
    with Event(cuda, timing_enabled=False, blocking_sync=False) as event:
        fake.inject("cudaEventQuery", E.cudaErrorInvalidResourceHandle)
        with pytest.raises(
            DeviceError, match=r"^cudaErrorInvalidResourceHandle: invalid resource handle, in cudaEventQuery"
        ):
            event.is_done()


@pytest.mark.parametrize("is_deferred", [False, True])
def test_fault_on_the_device_is_sticky(is_deferred: bool) -> None:
    fake = FakeCuda(is_deferred=is_deferred)
    cuda = Cuda(fake)
    stream, event = Stream(cuda), Event(cuda, timing_enabled=False, blocking_sync=False)
    fake.fault_in_next_kernel()
    assert fake.launch_kernel(stream.handle, lambda: None) is E.cudaSuccess
    for call, name in (
        (stream.sync, "cudaStreamSynchronize"),
        (event.sync, "cudaEventSynchronize"),
        (event.is_done, "cudaEventQuery"),
        (cuda.memory_info, "cudaMemGetInfo"),
        (stream.close, "cudaStreamDestroy"),
    ):
        with pytest.raises(DeviceError) as raised:
            call()
        assert raised.value.is_sticky
        explanation = "cudaErrorIllegalAddress: an illegal memory access was encountered"
        assert raised.value.message == f"{explanation}, in {name}"


def test_pinned_memory_is_not_pageable(fake: FakeCuda, cuda: Cuda, stream: Stream) -> None:
    host = np.zeros(64, np.uint8)
    with PinnedBuffer(cuda, 64) as pinned, DeviceBuffer(cuda, 64) as buffer:
        copy_h2d(cuda, buffer.address, pinned.address, 64, stream=stream)
        with HostRegistration(cuda, host) as registration:
            copy_h2d(cuda, buffer.address, registration.address, 64, stream=stream)
        assert fake.pageable_copies == 0
        copy_h2d(cuda, buffer.address, host.ctypes.data, 64, stream=stream)
        assert fake.pageable_copies == 1


def test_registration_keeps_the_array_alive(cuda: Cuda) -> None:
    array = np.zeros(64, np.uint8)
    registration = HostRegistration(cuda, array)
    assert registration._array is array
    registration.close()
    assert registration._array is None


@pytest.mark.parametrize(("pieces", "has_batches", "calls"), [(3, True, (1, 0)), (1, True, (0, 1)), (3, False, (0, 3))])
def test_one_call_for_a_batch_of_copies(
    fake: FakeCuda, cuda: Cuda, stream: Stream, pieces: int, has_batches: bool, calls: tuple[int, int]
) -> None:
    fake.driver_version = 13000 if has_batches else 12040
    with PinnedBuffer(cuda, 64) as pinned, DeviceBuffer(cuda, 64) as buffer:
        copy_batch_h2d(cuda, [(buffer.address, pinned.address, 8)] * pieces, stream=stream)
    assert (fake.calls["cudaMemcpyBatchAsync"], fake.calls["cudaMemcpyAsync"]) == calls


@pytest.mark.parametrize("code", [E.cudaErrorNotSupported, E.cudaErrorCallRequiresNewerDriver])
def test_a_driver_that_has_no_batches_after_all(fake: FakeCuda, cuda: Cuda, stream: Stream, code: E) -> None:
    fake.inject("cudaMemcpyBatchAsync", code)
    with PinnedBuffer(cuda, 64) as pinned, DeviceBuffer(cuda, 64) as buffer:
        pinned.host(np.uint8, (64,))[:] = 5
        for _ in range(2):
            copy_batch_h2d(cuda, [(buffer.address + at, pinned.address + at, 32) for at in (0, 32)], stream=stream)
        assert (fake.device_view(buffer.address, 64) == 5).all()
    assert fake.calls["cudaMemcpyBatchAsync"] == 1
    assert fake.cudaPeekAtLastError() == (E.cudaSuccess,)


def test_failed_batch_of_copies(fake: FakeCuda, cuda: Cuda, stream: Stream) -> None:
    fake.inject("cudaMemcpyBatchAsync", E.cudaErrorInvalidValue)
    with pytest.raises(DeviceError, match=r"^cudaErrorInvalidValue: invalid argument, in cudaMemcpyBatchAsync$"):
        copy_batch_h2d(cuda, [(1, 2, 3), (4, 5, 6)], stream=stream)
    assert cuda.batch_copy_attributes() is not None

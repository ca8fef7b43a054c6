"""`service.runtime.cuda` on the double and on the real device: the same cases, so that the double stays honest."""

from __future__ import annotations

import inspect
import mmap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.api import RuntimeApi
from service.runtime.cuda.check import STICKY
from service.runtime.cuda.copies import (
    Rows,
    copy_batch_h2d,
    copy_d2h,
    copy_h2d,
    copy_rows_d2h,
    copy_rows_h2d,
    fill,
)
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.graph import CaptureFailed, Graph, capture
from service.runtime.cuda.memory import DeviceBuffer, HostRegistration, PinnedBuffer
from service.runtime.cuda.stream import Event, Stream
from tests.doubles.fake_cuda import FakeCuda

MIB = 1 << 20


def mapped(nbytes: int) -> np.ndarray:
    """Zeros on pages of their own, as shared memory is: `uint8[nbytes]`."""
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)


MAKERS: dict[str, Callable[[Cuda], Stream | Event | PinnedBuffer | DeviceBuffer | HostRegistration]] = {
    "stream": Stream,
    "event": lambda cuda: Event(cuda, timing_enabled=False, blocking_sync=True),
    "pinned": lambda cuda: PinnedBuffer(cuda, 100),
    "device": lambda cuda: DeviceBuffer(cuda, 100),
    "registration": lambda cuda: HostRegistration(cuda, mapped(100)),
}
COUNTS = {
    "stream": LiveCounts(streams=1),
    "event": LiveCounts(events=1),
    "pinned": LiveCounts(pinned_bytes=100),
    "device": LiveCounts(device_bytes=100),
    "registration": LiveCounts(registrations=1),
}


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


# Life of objects


@pytest.mark.parametrize("kind", MAKERS)
def test_live_counts(cuda: Cuda, kind: str) -> None:
    with MAKERS[kind](cuda) as made:
        assert cuda.live == COUNTS[kind]
        with MAKERS[kind](cuda):
            assert cuda.live == COUNTS[kind] + COUNTS[kind]
    assert cuda.live == LiveCounts()
    made.close()
    assert cuda.live == LiveCounts()


@pytest.mark.parametrize("kind", MAKERS)
def test_closed_is_refused(cuda: Cuda, kind: str) -> None:
    made = MAKERS[kind](cuda)
    made.close()
    with pytest.raises(DeviceError, match=f"{type(made).__name__} is used after it was closed"):
        _ = made.native
    attribute = "handle" if kind == "stream" else "address" if kind != "event" else "native"
    with pytest.raises(DeviceError, match="closed"):
        getattr(made, attribute)


def test_device_facts(cuda: Cuda) -> None:
    memory = cuda.memory_info()
    assert 0 < memory.free_bytes <= memory.total_bytes
    assert cuda.device_name(0)
    assert cuda.compute_capability(0) >= (5, 0)
    assert min(cuda.driver_version, cuda.runtime_version) >= 12000


def test_no_such_device(cuda: Cuda) -> None:
    with pytest.raises(DeviceError) as raised:
        cuda.use_device(99)
    assert raised.value.message == "cudaErrorInvalidDevice: invalid device ordinal, in cudaSetDevice(99)"
    assert not raised.value.is_sticky
    cuda.memory_info()


# Streams and events


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


# Memory


@pytest.mark.parametrize("nbytes", [1, 255, 257, 100_000])
def test_device_buffers_are_aligned(cuda: Cuda, nbytes: int) -> None:
    with DeviceBuffer(cuda, nbytes) as first, DeviceBuffer(cuda, nbytes) as second:
        assert first.address % 256 == second.address % 256 == 0
        assert abs(first.address - second.address) >= nbytes


def test_out_of_device_memory(cuda: Cuda) -> None:
    nbytes = 2 * cuda.memory_info().total_bytes
    with pytest.raises(
        DeviceError, match=f"^cudaErrorMemoryAllocation: out of memory, in cudaMalloc of {nbytes} bytes$"
    ):
        DeviceBuffer(cuda, nbytes)
    assert int(cuda.api.cudaPeekAtLastError()[0]) == 0
    DeviceBuffer(cuda, 100).close()


@pytest.mark.parametrize("kind", [PinnedBuffer, DeviceBuffer])
def test_empty_buffers_are_refused(cuda: Cuda, kind: type[PinnedBuffer] | type[DeviceBuffer]) -> None:
    with pytest.raises(DeviceError, match="of 0 bytes was asked for"):
        kind(cuda, 0)


def test_host_arrays_share_the_buffer(cuda: Cuda) -> None:
    with PinnedBuffer(cuda, 64) as pinned:
        floats = pinned.host(np.float32, (2, 3), 16)
        floats[:] = np.arange(6, dtype=np.float32).reshape(2, 3)
        raw = pinned.host(np.uint8, (64,))
        assert raw[16:40].view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
        assert floats.ctypes.data == pinned.address + 16
        assert floats.flags.c_contiguous
        assert pinned.host(np.int64, (8,)).nbytes == pinned.nbytes
        assert pinned.host(np.int64, (), 56).shape == ()
        assert pinned.host(np.int64, (0, 4), 64).shape == (0, 4)


@pytest.mark.parametrize(("shape", "offset"), [((9,), 0), ((8,), 8), ((1,), 4), ((1,), -8), ((1,), 64)], ids=str)
def test_host_arrays_stay_inside(cuda: Cuda, shape: tuple[int, ...], offset: int) -> None:
    with PinnedBuffer(cuda, 64) as pinned, pytest.raises(DeviceError, match="in a pinned buffer of 64 bytes"):
        pinned.host(np.int64, shape, offset)


def test_registered_memory(cuda: Cuda, stream: Stream) -> None:
    host, back = mapped(4 * MIB), mapped(4 * MIB)
    host[:] = np.random.default_rng(1).integers(0, 256, host.size, np.uint8)
    with (
        HostRegistration(cuda, host) as registration,
        HostRegistration(cuda, back),
        DeviceBuffer(cuda, host.nbytes) as buffer,
    ):
        assert (registration.address, registration.nbytes) == (host.ctypes.data, host.nbytes)
        copy_h2d(cuda, buffer.address, registration.address, host.nbytes, stream=stream)
        copy_d2h(cuda, back.ctypes.data, buffer.address, host.nbytes, stream=stream)
        stream.sync()
        assert np.array_equal(back, host)
        with pytest.raises(DeviceError, match=f"^cudaErrorHostMemoryAlreadyRegistered: .* of {host.nbytes} bytes$"):
            HostRegistration(cuda, host)
    HostRegistration(cuda, host).close()


@pytest.mark.parametrize("array", [np.zeros((4, 4))[:, :2], np.zeros(0)], ids=["gaps", "empty"])
def test_unfit_arrays_are_not_registered(cuda: Cuda, array: np.ndarray) -> None:
    with pytest.raises(DeviceError, match=r"contiguous|of 0 bytes"):
        HostRegistration(cuda, array)


# Copies


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


# Graphs


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


# The double against the binding, where it is installed; that needs no GPU


@pytest.fixture(scope="module")
def binding():
    return pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")


def members(owner: type) -> list[str]:
    return [name for name in vars(owner) if name.startswith("cuda")]


@pytest.mark.parametrize("name", [name for name in members(FakeCuda) if inspect.isfunction(getattr(FakeCuda, name))])
def test_double_takes_what_the_binding_takes(binding, name: str) -> None:
    mine = inspect.signature(getattr(FakeCuda, name)).parameters
    theirs = inspect.signature(getattr(binding, name)).parameters
    assert [*mine][1:] == [*theirs]


@pytest.mark.parametrize("name", [name for name in members(FakeCuda) if isinstance(getattr(FakeCuda, name), type)])
def test_double_has_the_values_of_the_binding(binding, name: str) -> None:
    mine, theirs = getattr(FakeCuda, name), getattr(binding, name)
    if issubclass(mine, IntEnum):
        assert {member.name: int(member) for member in mine} == {
            member.name: int(getattr(theirs, member.name)) for member in mine
        }
    else:
        assert all(hasattr(theirs(), field) for field in vars(mine()))


@pytest.mark.parametrize("name", [name for name in members(FakeCuda) if isinstance(getattr(FakeCuda, name), int)])
def test_double_has_the_flags_of_the_binding(binding, name: str) -> None:
    assert getattr(FakeCuda, name) == getattr(binding, name)


@pytest.mark.parametrize("name", RuntimeApi.__annotations__)
def test_binding_and_double_have_what_the_service_calls(binding, name: str) -> None:
    assert hasattr(binding, name)
    assert hasattr(FakeCuda, name)


def test_sticky_errors_are_errors_of_the_binding(binding) -> None:
    since_12_8 = {"cudaErrorContained", "cudaErrorTensorMemoryLeak"}
    assert set(STICKY) - since_12_8 <= {error.name for error in binding.cudaError_t}

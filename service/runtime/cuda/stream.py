"""Streams and events: the order of work on the device, and the host's way of waiting for it.

A stream here is never the legacy one and never depends on it. Streams and events belong to the device of the
thread that made them.
"""

from __future__ import annotations

from functools import partial

from service.errors import DeviceError
from service.runtime.cuda.api import Handle
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.check import check, device_error
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.resource import Resource


class Stream(Resource[Handle]):
    """A non-blocking stream.

    Args:
        cuda: the process's CUDA.
        priority: lower numbers are more urgent; CUDA clamps it to the device's range.
    """

    def __init__(self, cuda: Cuda, *, priority: int = 0) -> None:
        api = cuda.api
        created = api.cudaStreamCreateWithPriority(api.cudaStreamNonBlocking, priority)
        native = check(api, "cudaStreamCreateWithPriority", created)
        super().__init__(cuda, native, LiveCounts(streams=1))
        self._handle = int(native)

    @property
    def handle(self) -> int:
        """The number that libraries such as TensorRT take for a stream; never 0 while it is open."""
        if self._native is None:
            raise DeviceError("Stream is used after it was closed; close it after everything that uses it")
        return self._handle

    def sync(self) -> None:
        """Blocks the calling thread until all work of the stream is done.

        Raises:
            DeviceError: some work failed, not necessarily this stream's; or the stream is being captured.
        """
        check(self._cuda.api, "cudaStreamSynchronize", self._cuda.api.cudaStreamSynchronize(self.native))

    def wait(self, event: Event) -> None:
        """Lets the stream's later work begin only after what `event` has recorded; the host goes on."""
        waited = self._cuda.api.cudaStreamWaitEvent(self.native, event.native, 0)
        check(self._cuda.api, "cudaStreamWaitEvent", waited)

    def prepare_wait(self, event: Event) -> PreparedCall:
        """`wait` for later."""
        call = partial(self._cuda.api.cudaStreamWaitEvent, self.native, event.native, 0)
        return PreparedCall("cudaStreamWaitEvent", call)

    def _release(self, native: Handle) -> None:
        check(self._cuda.api, "cudaStreamDestroy", self._cuda.api.cudaStreamDestroy(native))


class Event(Resource[Handle]):
    """A mark in a stream's work. One that was never recorded counts as done.

    Args:
        cuda: the process's CUDA.
        timing_enabled: keeps the time of the mark; costs a little, and is needed for `elapsed_ns_since`.
        blocking_sync: `sync` sleeps instead of spinning: some microseconds later, without a busy core.
    """

    def __init__(self, cuda: Cuda, *, timing_enabled: bool, blocking_sync: bool) -> None:
        api = cuda.api
        flags = 0 if timing_enabled else api.cudaEventDisableTiming
        flags |= api.cudaEventBlockingSync if blocking_sync else 0
        native = check(api, "cudaEventCreateWithFlags", api.cudaEventCreateWithFlags(flags))
        super().__init__(cuda, native, LiveCounts(events=1))
        self._timing_enabled = timing_enabled

    def record(self, *, stream: Stream) -> None:
        """Marks the end of what `stream` has been given so far; an earlier mark is forgotten."""
        check(self._cuda.api, "cudaEventRecord", self._cuda.api.cudaEventRecord(self.native, stream.native))

    def prepare_record(self, *, stream: Stream) -> PreparedCall:
        """`record` for later."""
        return PreparedCall("cudaEventRecord", partial(self._cuda.api.cudaEventRecord, self.native, stream.native))

    def sync(self) -> None:
        """Blocks the calling thread until the mark is reached.

        Raises:
            DeviceError: some work failed, not necessarily this stream's.
        """
        check(self._cuda.api, "cudaEventSynchronize", self._cuda.api.cudaEventSynchronize(self.native))

    def is_done(self) -> bool:
        """Whether the mark is reached; does not block.

        Raises:
            DeviceError: some work failed, not necessarily this stream's.
        """
        api = self._cuda.api
        code = api.cudaEventQuery(self.native)[0]
        if not code:
            return True
        if code != api.cudaError_t.cudaErrorNotReady:
            raise device_error(api, "cudaEventQuery", code)
        api.cudaGetLastError()  # "not ready" would stay there for the next library that looks
        return False

    def elapsed_ns_since(self, earlier: Event) -> int:
        """Nanoseconds from `earlier` to this event, on the device's clock; it ticks about twice a microsecond.

        Raises:
            DeviceError: one of them was made without timing, is not recorded, or is not reached yet.
        """
        if not (self._timing_enabled and earlier._timing_enabled):
            raise DeviceError("the time between two events was asked for, but not both were made with timing_enabled")
        api = self._cuda.api
        elapsed_ms = check(api, "cudaEventElapsedTime", api.cudaEventElapsedTime(earlier.native, self.native))
        return round(elapsed_ms * 1e6)

    def _release(self, native: Handle) -> None:
        check(self._cuda.api, "cudaEventDestroy", self._cuda.api.cudaEventDestroy(native))

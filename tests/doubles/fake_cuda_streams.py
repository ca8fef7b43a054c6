"""Streams and events of the CUDA double: what is enqueued runs in order, now or when somebody waits, or is captured."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.doubles.fake_cuda_core import FakeCore, api_call
from tests.doubles.fake_cuda_types import (
    Capture,
    Event,
    Failed,
    Handle,
    Node,
    Op,
    Stream,
    cudaError_t,
    cudaGraphNodeType,
    cudaMemsetParams,
    cudaStreamCaptureMode,
)

E = cudaError_t

NO_STREAMS = frozenset({0, 1, 2})
"""The numbers of the legacy and the per-thread default streams."""


class FakeStreams(FakeCore):
    """Runs work in the order of its stream, and refuses what a capture does not allow."""

    cudaStreamNonBlocking = 1
    cudaEventBlockingSync = 1
    cudaEventDisableTiming = 2

    def __init__(self, *, clock: Callable[[], int] | None, is_deferred: bool) -> None:
        super().__init__()
        self.is_deferred = is_deferred
        self._clock = clock or self._tick
        self._ticks = 0
        self._kernel_fault: cudaError_t | None = None

    def fault_in_next_kernel(self, error: cudaError_t = E.cudaErrorIllegalAddress) -> None:
        """Lets the next kernel fail while it runs: whoever asks next learns it, and everybody after that."""
        self._kernel_fault = error

    def launch_kernel(self, stream: Any, run: Callable[[], None]) -> cudaError_t:
        """What a library such as TensorRT does in an enqueue: gives work to a stream, or to its capture."""
        return self._launchKernel(stream, run)[0]

    def is_capturing(self, stream: Any) -> bool:
        return self._stream(stream).capture is not None

    # Streams

    @api_call(values=1)
    def cudaStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[Handle]:
        if not flags & self.cudaStreamNonBlocking:
            self._violation("a stream that depends on the legacy stream was created")
        return (self._new_handle(Stream(self._current_device, priority)),)

    @api_call()
    def cudaStreamSynchronize(self, stream: Any) -> None:
        found = self._stream(stream)
        self._unsafe(found)
        self._drain(found)
        self._fail_if_sticky()

    @api_call()
    def cudaStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        found, mark = self._stream(stream), self._event(event)
        if found.capture is not None and mark.mark is not None:
            self._invalidate(found.capture, E.cudaErrorStreamCaptureIsolation)
        if mark.is_captured:
            raise Failed(E.cudaErrorCapturedEvent)
        awaited = mark.mark
        if awaited is not None:
            self._enqueue(found, lambda: self._run_through(awaited))

    @api_call()
    def cudaStreamDestroy(self, stream: Any) -> None:
        self._drain(self._stream(stream))
        del self._handles[int(stream)]

    # Events

    @api_call(values=1)
    def cudaEventCreateWithFlags(self, flags: int) -> tuple[Handle]:
        return (self._new_handle(Event(self._current_device, flags)),)

    @api_call()
    def cudaEventRecord(self, event: Any, stream: Any) -> None:
        found, on = self._event(event), self._stream(stream)
        if found.device != on.device:
            raise Failed(E.cudaErrorInvalidResourceHandle)
        found.is_captured = on.capture is not None
        if on.capture is not None:
            self._require_valid(on.capture)
            found.mark = None
            return

        def reach() -> None:
            found.time_ns = self._clock()

        found.time_ns = None
        found.mark = self._enqueue(on, reach)

    @api_call()
    def cudaEventSynchronize(self, event: Any) -> None:
        self._unsafe()
        found = self._event(event)
        if found.is_captured:
            raise Failed(E.cudaErrorCapturedEvent)
        if found.mark is not None:
            self._run_through(found.mark)
        self._fail_if_sticky()

    @api_call()
    def cudaEventQuery(self, event: Any) -> None:
        """A deferred device makes one step per query, so that a loop of queries comes to its end."""
        self._unsafe()
        found = self._event(event)
        if found.is_captured:
            raise Failed(E.cudaErrorCapturedEvent)
        if found.mark is not None and not found.mark.is_done:
            self._step(found.mark.stream)
            raise Failed(E.cudaErrorNotReady)

    @api_call(values=1)
    def cudaEventElapsedTime(self, start: Any, end: Any) -> tuple[float]:
        events = (self._event(start), self._event(end))
        if any(event.flags & self.cudaEventDisableTiming or event.mark is None for event in events):
            raise Failed(E.cudaErrorInvalidResourceHandle)
        begin_ns, end_ns = (event.time_ns for event in events)
        if begin_ns is None or end_ns is None:
            raise Failed(E.cudaErrorNotReady)
        return ((end_ns - begin_ns) / 1e6,)

    @api_call()
    def cudaEventDestroy(self, event: Any) -> None:
        self._event(event)
        del self._handles[int(event)]

    # Work

    @api_call()
    def _launchKernel(self, stream: Any, run: Callable[[], None]) -> None:
        fault, self._kernel_fault = self._kernel_fault, None

        def kernel() -> None:
            if fault is not None:
                raise Failed(fault)
            run()

        self._enqueue(self._stream(stream), kernel)

    def _enqueue(
        self,
        stream: Stream,
        run: Callable[[], None],
        kind: cudaGraphNodeType = cudaGraphNodeType.cudaGraphNodeTypeKernel,
        memset: cudaMemsetParams | None = None,
    ) -> Op:
        op = Op(stream, run)
        if stream.capture is not None:
            self._require_valid(stream.capture)
            nodes = stream.capture.nodes
            nodes.append(Node(kind, run, memset, nodes[-1:]))
            return op
        stream.queue.append(op)
        if not self.is_deferred:
            self._drain(stream)
        return op

    def _step(self, stream: Stream) -> None:
        if stream.queue:
            op = stream.queue.popleft()
            try:
                op.run()
            except Failed as failure:
                self._sticky = failure.code
            finally:
                op.is_done = True

    def _drain(self, stream: Stream) -> None:
        while stream.queue:
            self._step(stream)

    def _run_through(self, op: Op) -> None:
        while not op.is_done:
            self._step(op.stream)

    def _tick(self) -> int:
        self._ticks += 1000
        return self._ticks

    # What a capture does not allow

    def _unsafe(self, stream: Stream | None = None) -> None:
        """A call that would break a capture: of its own stream, of its thread, or of anybody in global mode."""
        for found in self._streams():
            if found.capture is None:
                continue
            is_global = found.capture.mode is cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
            is_local = found.capture.mode is cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
            is_mine = is_local and found.capture.thread == threading.get_ident()
            if found is stream or is_global or is_mine:
                self._invalidate(found.capture, E.cudaErrorStreamCaptureUnsupported)

    def _invalidate(self, capture: Capture, code: cudaError_t) -> None:
        capture.is_invalid = True
        raise Failed(code)

    def _require_valid(self, capture: Capture) -> None:
        if capture.is_invalid:
            raise Failed(E.cudaErrorStreamCaptureInvalidated)

    # Handles

    def _streams(self) -> list[Stream]:
        return [value for value in self._handles.values() if isinstance(value, Stream)]

    def _stream(self, stream: Any) -> Stream:
        if stream is None or int(stream) in NO_STREAMS:
            for found in self._streams():
                if found.capture is not None:
                    self.violations.append("the legacy stream is used during a capture")
                    self._invalidate(found.capture, E.cudaErrorStreamCaptureImplicit)
            self._violation("the legacy stream is used", E.cudaErrorInvalidResourceHandle)
        return self._find(stream, Stream)

    def _event(self, event: Any) -> Event:
        return self._find(event, Event)

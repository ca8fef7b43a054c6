"""CUDA Graphs: what an enqueue gives to a stream, captured once and replayed by one short call.

A graph keeps the addresses, shapes and scratch it was captured with: all of them must outlive it unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from service.errors import DeviceError, ServiceError
from service.runtime.cuda.api import Handle
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.check import check, device_error
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.resource import Resource
from service.runtime.cuda.stream import Stream

Rework: TypeAlias = Callable[[Handle], Handle | None]
"""Gives a graph to instantiate in the place of a captured one, which stays as it is; None if there is no better one.

The new graph is its caller's, to destroy. It may raise sticky errors alone.
"""

_log = logging.getLogger(__name__)


class CaptureFailed(Exception):
    """The work cannot be captured, here and now; it goes on running eagerly. No client ever sees this.

    Attributes:
        reason: why, for the bucket's entry in `models` and the metrics' log.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Graph(Resource[Handle]):
    """An executable graph; made by `capture`. One launch of it runs at a time, whatever the streams.

    Attributes:
        node_count: its kernels, copies and fills.
        device_bytes: by how much the device's free memory shrank during its capture. Approximate: others may
            allocate at the same time, and CUDA reserves memory for several graphs at once.
    """

    def __init__(self, cuda: Cuda, native: Handle, node_count: int, device_bytes: int) -> None:
        super().__init__(cuda, native, LiveCounts(graphs=1))
        self.node_count = node_count
        self.device_bytes = device_bytes

    def launch(self, *, stream: Stream) -> None:
        """Gives the whole graph to `stream`; returns at once.

        Raises:
            DeviceError: CUDA refused, or some earlier work failed.
        """
        check(self._cuda.api, "cudaGraphLaunch", self._cuda.api.cudaGraphLaunch(self.native, stream.native))

    def prepare_launch(self, *, stream: Stream) -> PreparedCall:
        """`launch` for later."""
        return PreparedCall("cudaGraphLaunch", partial(self._cuda.api.cudaGraphLaunch, self.native, stream.native))

    def _release(self, native: Handle) -> None:
        check(self._cuda.api, "cudaGraphExecDestroy", self._cuda.api.cudaGraphExecDestroy(native))


def capture(cuda: Cuda, enqueue: Callable[[], bool], *, stream: Stream, rework: Rework | None = None) -> Graph:
    """Captures what `enqueue` gives to `stream`; called at start-up, on the thread that owns the stream.

    `enqueue` runs twice: once for real, so that it does what it puts off until its first run, then under capture.
    The capture restricts this thread alone; one capture at a time runs in the process.

    Args:
        cuda: the process's CUDA.
        enqueue: gives work to `stream` and says whether it could. It must not allocate, nor sync.
        stream: has no work that it could not finish now.
        rework: makes a better graph of the captured one. Where CUDA does not take that, the captured one it is.

    Returns:
        The graph, uploaded to the device.

    Raises:
        CaptureFailed: the work cannot be captured; the stream is as usable as before.
        DeviceError: CUDA failed beside the capture, or for good.
    """
    if not enqueue():
        raise CaptureFailed("enqueue failed before the capture")
    stream.sync()
    with cuda.capture_lock:
        free_before = cuda.memory_info().free_bytes
        raw = _captured(cuda, enqueue, stream)
        try:
            _, node_count = check(cuda.api, "cudaGraphGetNodes", cuda.api.cudaGraphGetNodes(raw))
            if node_count == 0:
                raise CaptureFailed("enqueue gave no work to the captured stream")
            native = _reworked(cuda, raw, stream, rework) or _instantiated(cuda, raw, stream)
        except BaseException:
            cuda.api.cudaGraphDestroy(raw)  # unchecked: what went wrong first is what must be reported
            raise
        try:
            check(cuda.api, "cudaGraphDestroy", cuda.api.cudaGraphDestroy(raw))
            device_bytes = max(0, free_before - cuda.memory_info().free_bytes)
        except BaseException:
            cuda.api.cudaGraphExecDestroy(native)
            raise
        return Graph(cuda, native, node_count, device_bytes)


def _captured(cuda: Cuda, enqueue: Callable[[], bool], stream: Stream) -> Handle:
    """The raw graph; whatever happens, the stream is not capturing afterwards and no error is left behind."""
    api = cuda.api
    begun = api.cudaStreamBeginCapture(stream.native, api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
    check(api, "cudaStreamBeginCapture", begun)
    reason = "enqueue failed under capture"
    is_enqueued = False
    try:
        is_enqueued = enqueue()
    except ServiceError as error:
        if isinstance(error, DeviceError) and error.is_sticky:
            raise
        reason = error.message
    finally:
        code, raw = api.cudaStreamEndCapture(stream.native)
        if raw is not None and int(raw) and (code or not is_enqueued):
            api.cudaGraphDestroy(raw)
        if code or not is_enqueued:
            api.cudaGetLastError()
    if code:
        ended = device_error(api, "cudaStreamEndCapture", code)
        raise _failure(ended, ended.message if is_enqueued else f"{reason}; {ended.message}")
    if not is_enqueued or raw is None:
        raise CaptureFailed(reason)
    return raw


def _reworked(cuda: Cuda, raw: Handle, stream: Stream, rework: Rework | None) -> Handle | None:
    """The executable graph of what `rework` makes of the captured one; None where nothing comes of it."""
    graph = None if rework is None else rework(raw)
    if graph is None:
        return None
    try:
        return _instantiated(cuda, graph, stream)
    except CaptureFailed as failure:
        _log.debug("a graph is used as it was captured, for its reworked one cannot be: %s", failure.reason)
        return None
    finally:
        cuda.api.cudaGraphDestroy(graph)  # unchecked: the captured one is as good


def _instantiated(cuda: Cuda, raw: Handle, stream: Stream) -> Handle:
    """The executable graph, on the device already."""
    api = cuda.api
    try:
        native = check(api, "cudaGraphInstantiate", api.cudaGraphInstantiate(raw, 0))
    except DeviceError as error:
        raise _failure(error, error.message) from error
    try:
        check(api, "cudaGraphUpload", api.cudaGraphUpload(native, stream.native))
        stream.sync()
    except DeviceError as error:
        api.cudaGraphExecDestroy(native)
        raise _failure(error, error.message) from error
    return native


def _failure(error: DeviceError, reason: str) -> DeviceError | CaptureFailed:
    """Only a sticky error is more than a reason to run eagerly."""
    return error if error.is_sticky else CaptureFailed(reason)

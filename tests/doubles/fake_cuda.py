"""CUDA without a GPU: the calling convention, the rules and the failures of `cuda.bindings.runtime`.

`Cuda(FakeCuda())` works like the real thing. Device memory is NumPy memory behind addresses of its own, so that host
and device addresses cannot be taken for each other. Work runs when it is enqueued; with `is_deferred` it runs no
earlier than somebody waits for it, so that a missing sync is seen. Where CUDA would allow what this project never
does (the legacy stream), or would corrupt memory silently, the fake refuses and writes it down in `violations`.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tests.doubles.fake_cuda_types import (
    EXPLANATIONS,
    STICKY,
    Block,
    Capture,
    DeviceProperties,
    Event,
    Exec,
    Failed,
    Graph,
    Handle,
    Op,
    Stream,
    cudaDeviceAttr,
    cudaError_t,
    cudaMemcpyAttributes,
    cudaMemcpyKind,
    cudaMemcpySrcAccessOrder,
    cudaStreamCaptureMode,
)

E = cudaError_t
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

NO_STREAMS = frozenset({0, 1, 2})
"""The numbers of the legacy and the per-thread default streams."""


def api_call(*, values: int = 0) -> Callable[[F], F]:
    """Makes a method that returns a tuple of values, or raises `Failed`, keep the binding's convention."""

    def decorate(function: Callable[..., Any]) -> Any:
        name = function.__name__

        @functools.wraps(function)
        def call(self: FakeCuda, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            with self._lock:
                self.calls[name] += 1
                try:
                    self._fail_if_told(name)
                    given = function(self, *args, **kwargs)
                except Failed as failure:
                    if failure.code in STICKY:
                        self._sticky = failure.code
                    self._local.last_error = failure.code
                    return (failure.code, *(None,) * values)
            return (E.cudaSuccess, *(given or ()))

        return call

    return decorate


class FakeCuda:
    """Stands where the module `cuda.bindings.runtime` would.

    Attributes:
        violations: what a real device would not have reported and no test should do.
        calls: how often each function was called.
        pageable_copies: asynchronous copies whose host side was neither pinned nor registered.
    """

    cudaError_t = cudaError_t
    cudaMemcpyKind = cudaMemcpyKind
    cudaStreamCaptureMode = cudaStreamCaptureMode
    cudaMemcpySrcAccessOrder = cudaMemcpySrcAccessOrder
    cudaDeviceAttr = cudaDeviceAttr
    cudaMemcpyAttributes = cudaMemcpyAttributes
    cudaStreamNonBlocking = 1
    cudaEventBlockingSync = 1
    cudaEventDisableTiming = 2
    cudaHostAllocPortable = 1
    cudaHostRegisterPortable = 1

    def __init__(
        self,
        *,
        device_count: int = 1,
        total_bytes: int = 1 << 30,
        clock: Callable[[], int] | None = None,
        is_deferred: bool = False,
    ) -> None:
        self.device_count = device_count
        self.total_bytes = total_bytes
        self.driver_version = 13000
        self.runtime_version = 13000
        self.graph_bytes = 1 << 16
        self.is_deferred = is_deferred
        self.violations: list[str] = []
        self.calls: Counter[str] = Counter()
        self.pageable_copies = 0
        self._clock = clock or self._tick
        self._ticks = 0
        self._lock = threading.RLock()
        self._local = threading.local()
        self._next_handle = 0x1000
        self._next_address = 0x7_0000_0000_0000
        self._handles: dict[int, object] = {}
        self._device: list[Block] = []
        self._pinned: list[Block] = []
        self._registered: dict[int, int] = {}
        self._faults: list[tuple[str, int, cudaError_t]] = []
        self._kernel_fault: cudaError_t | None = None
        self._sticky: cudaError_t | None = None

    # What tests and other doubles use

    def inject(self, call: str, error: cudaError_t, *, after: int = 0) -> None:
        """Lets a function fail once, after it has succeeded `after` more times."""
        self._faults.append((call, self.calls[call] + after + 1, error))

    def fault_in_next_kernel(self, error: cudaError_t = E.cudaErrorIllegalAddress) -> None:
        """Lets the next kernel fail while it runs: whoever asks next learns it, and everybody after that."""
        self._kernel_fault = error

    def launch_kernel(self, stream: Any, run: Callable[[], None]) -> cudaError_t:
        """What a library such as TensorRT does in an enqueue: gives work to a stream, or to its capture."""
        return self._launchKernel(stream, run)[0]

    def device_view(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Device memory, for what kernels of the fake do; `uint8[nbytes]`."""
        with self._lock:
            return self._device_slice(address, nbytes, "a kernel", E.cudaErrorIllegalAddress)

    def is_capturing(self, stream: Any) -> bool:
        return self._stream(stream).capture is not None

    def live_objects(self) -> dict[str, int]:
        """How many native objects there are, by kind; without those there are none of."""
        kinds = Counter(type(value).__name__.lower() for value in self._handles.values())
        kinds["device"] = sum(not block.is_freed for block in self._device)
        kinds["pinned"] = sum(not block.is_freed for block in self._pinned)
        kinds["registration"] = len(self._registered)
        return {kind: count for kind, count in kinds.items() if count}

    # Errors

    def cudaGetErrorName(self, error: cudaError_t) -> tuple[cudaError_t, bytes]:
        return E.cudaSuccess, error.name.encode()

    def cudaGetErrorString(self, error: cudaError_t) -> tuple[cudaError_t, bytes]:
        return E.cudaSuccess, EXPLANATIONS.get(error, "explained by CUDA").encode()

    def cudaGetLastError(self) -> tuple[cudaError_t]:
        last = getattr(self._local, "last_error", E.cudaSuccess)
        self._local.last_error = E.cudaSuccess
        return (self._sticky or last,)

    def cudaPeekAtLastError(self) -> tuple[cudaError_t]:
        return (self._sticky or getattr(self._local, "last_error", E.cudaSuccess),)

    # Devices

    def cudaDriverGetVersion(self) -> tuple[cudaError_t, int]:
        return E.cudaSuccess, self.driver_version

    def cudaRuntimeGetVersion(self) -> tuple[cudaError_t, int]:
        return E.cudaSuccess, self.runtime_version

    @api_call(values=1)
    def cudaGetDeviceCount(self) -> tuple[int]:
        if self.driver_version < self.runtime_version // 1000 * 1000:
            raise Failed(E.cudaErrorInsufficientDriver)
        if not self.device_count:
            raise Failed(E.cudaErrorNoDevice)
        return (self.device_count,)

    @api_call()
    def cudaSetDevice(self, device: int) -> None:
        self._require_device(device)
        self._local.device = device

    @api_call(values=1)
    def cudaGetDevice(self) -> tuple[int]:
        return (self._current_device,)

    @api_call(values=1)
    def cudaDeviceGetAttribute(self, attr: cudaDeviceAttr, device: int) -> tuple[int]:
        self._require_device(device)
        return (9 if attr is cudaDeviceAttr.cudaDevAttrComputeCapabilityMajor else 0,)

    @api_call(values=1)
    def cudaGetDeviceProperties(self, device: int) -> tuple[DeviceProperties]:
        self._require_device(device)
        return (DeviceProperties(b"Fake GPU"),)

    @api_call(values=2)
    def cudaMemGetInfo(self) -> tuple[int, int]:
        return self._free_bytes, self.total_bytes

    @api_call()
    def cudaDeviceSynchronize(self) -> None:
        self._unsafe()
        for stream in self._streams():
            self._drain(stream)
        self._fail_if_sticky()

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

    # Memory

    @api_call(values=1)
    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int]:
        self._unsafe()
        memory = np.full(size + 4096, 0xCD, np.uint8)
        start = -memory.ctypes.data % 4096
        block = Block(memory.ctypes.data + start, memory[start : start + size], self._current_device)
        self._pinned.append(block)
        self._pinned.sort(key=lambda block: block.address)
        return (block.address,)

    @api_call()
    def cudaFreeHost(self, ptr: int) -> None:
        self._unsafe()
        self._free(self._pinned, ptr)

    @api_call(values=1)
    def cudaMalloc(self, size: int) -> tuple[int]:
        self._unsafe()
        if size > self._free_bytes:
            raise Failed(E.cudaErrorMemoryAllocation)
        block = Block(self._next_address, np.full(size, 0xCD, np.uint8), self._current_device)
        self._device.append(block)
        self._next_address += -(-size // 256) * 256 + 256
        return (block.address,)

    @api_call()
    def cudaFree(self, devPtr: int) -> None:
        self._unsafe()
        self._free(self._device, devPtr)

    @api_call()
    def cudaHostRegister(self, ptr: int, size: int, flags: int) -> None:
        self._unsafe()
        if any(ptr < start + length and start < ptr + size for start, length in self._registered.items()):
            raise Failed(E.cudaErrorHostMemoryAlreadyRegistered)
        self._registered[ptr] = size

    @api_call()
    def cudaHostUnregister(self, ptr: int) -> None:
        self._unsafe()
        if self._registered.pop(ptr, None) is None:
            raise Failed(E.cudaErrorHostMemoryNotRegistered)

    # Copies

    @api_call()
    def cudaMemcpyAsync(self, dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: Any) -> None:
        self._copy(dst, src, count, kind, self._stream(stream))

    @api_call()
    def cudaMemcpy2DAsync(  # noqa: PLR0917 - as the binding has it
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: cudaMemcpyKind, stream: Any
    ) -> None:
        if width > min(dpitch, spitch):
            raise Failed(E.cudaErrorInvalidPitchValue)
        on = self._stream(stream)
        rows = [(self._plan_copy(dst + row * dpitch, src + row * spitch, width, kind)) for row in range(height)]
        if rows:
            self._enqueue(on, lambda: [copy() for copy in rows] and None)

    @api_call()
    def cudaMemcpyBatchAsync(  # noqa: PLR0917 - as the binding has it
        self,
        dsts: Sequence[int],
        srcs: Sequence[int],
        sizes: Sequence[int],
        count: int,
        attrs: Sequence[cudaMemcpyAttributes],
        attrsIdxs: Sequence[int],
        numAttrs: int,
        stream: Any,
    ) -> None:
        is_ordered = all(attr.srcAccessOrder for attr in attrs)
        if not len(dsts) == len(srcs) == len(sizes) == count or not is_ordered or attrsIdxs[0] != 0 or not count:
            raise Failed(E.cudaErrorInvalidValue)
        if len(attrs) != numAttrs or numAttrs > count:
            raise Failed(E.cudaErrorInvalidValue)
        on = self._stream(stream)
        for dst, src, size in zip(dsts, srcs, sizes, strict=True):
            self._copy(dst, src, size, cudaMemcpyKind.cudaMemcpyHostToDevice, on)

    @api_call()
    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: Any) -> None:
        on = self._stream(stream)
        self._device_slice(devPtr, count, "a fill", E.cudaErrorInvalidValue)
        self._enqueue(on, lambda: self._late_slice(devPtr, count).fill(value))

    @api_call()
    def _launchKernel(self, stream: Any, run: Callable[[], None]) -> None:
        fault, self._kernel_fault = self._kernel_fault, None

        def kernel() -> None:
            if fault is not None:
                raise Failed(fault)
            run()

        self._enqueue(self._stream(stream), kernel)

    # Graphs

    @api_call()
    def cudaStreamBeginCapture(self, stream: Any, mode: cudaStreamCaptureMode) -> None:
        found = self._stream(stream)
        if found.capture is not None:
            raise Failed(E.cudaErrorIllegalState)
        found.capture = Capture(mode, threading.get_ident())

    @api_call(values=1)
    def cudaStreamEndCapture(self, stream: Any) -> tuple[Handle]:
        found = self._stream(stream)
        capture = found.capture
        if capture is None:
            raise Failed(E.cudaErrorIllegalState)
        is_bound = capture.mode is not cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        if is_bound and capture.thread != threading.get_ident():
            raise Failed(E.cudaErrorStreamCaptureWrongThread)
        found.capture = None
        self._require_valid(capture)
        return (self._new_handle(Graph(capture.nodes)),)

    @api_call(values=2)
    def cudaGraphGetNodes(self, graph: Any, numNodes: int = 0) -> tuple[list[Handle], int]:
        nodes = self._find(graph, Graph).nodes
        return [Handle(index + 1) for index in range(min(numNodes, len(nodes)))], len(nodes)

    @api_call(values=1)
    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Handle]:
        self._unsafe()
        nodes = self._find(graph, Graph).nodes
        if self.graph_bytes > self._free_bytes:
            raise Failed(E.cudaErrorMemoryAllocation)
        return (self._new_handle(Exec(self._current_device, tuple(nodes))),)

    @api_call()
    def cudaGraphUpload(self, graphExec: Any, stream: Any) -> None:
        self._find(graphExec, Exec)
        self._stream(stream)

    @api_call()
    def cudaGraphLaunch(self, graphExec: Any, stream: Any) -> None:
        nodes = self._find(graphExec, Exec).nodes

        def replay() -> None:
            for node in nodes:
                node()

        self._enqueue(self._stream(stream), replay)

    @api_call()
    def cudaGraphDestroy(self, graph: Any) -> None:
        self._find(graph, Graph)
        del self._handles[int(graph)]

    @api_call()
    def cudaGraphExecDestroy(self, graphExec: Any) -> None:
        self._find(graphExec, Exec)
        del self._handles[int(graphExec)]

    # Rules

    def _fail_if_told(self, name: str) -> None:
        self._fail_if_sticky()
        for fault in self._faults:
            call, at, error = fault
            if call == name and self.calls[name] >= at:
                self._faults.remove(fault)
                raise Failed(error)

    def _fail_if_sticky(self) -> None:
        if self._sticky is not None:
            raise Failed(self._sticky)

    def _violation(self, what: str, code: cudaError_t = E.cudaErrorInvalidValue) -> None:
        self.violations.append(what)
        raise Failed(code)

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

    # Work

    def _enqueue(self, stream: Stream, run: Callable[[], None]) -> Op:
        op = Op(stream, run)
        if stream.capture is not None:
            self._require_valid(stream.capture)
            stream.capture.nodes.append(run)
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

    # Copies

    def _copy(self, dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: Stream) -> None:
        if count:
            self._enqueue(stream, self._plan_copy(dst, src, count, kind))

    def _plan_copy(self, dst: int, src: int, count: int, kind: cudaMemcpyKind) -> Callable[[], None]:
        """Checks both sides now, as CUDA does, and gives what copies them later."""
        target_is_host = kind is cudaMemcpyKind.cudaMemcpyDeviceToHost
        source_is_host = kind is cudaMemcpyKind.cudaMemcpyHostToDevice
        for address, is_host in ((dst, target_is_host), (src, source_is_host)):
            if is_host:
                self._require_host(address, count)
            else:
                self._device_slice(address, count, "a copy", E.cudaErrorInvalidValue)

        def copy() -> None:
            target = self._host_slice(dst, count) if target_is_host else self._late_slice(dst, count)
            source = self._host_slice(src, count) if source_is_host else self._late_slice(src, count)
            target[:] = source

        return copy

    def _require_host(self, address: int, count: int) -> None:
        if self._block(self._device, address) is not None:
            self._violation(f"a device address {address:#x} was given as a host address")
        block = self._block(self._pinned, address)
        if block is None:
            is_registered = any(
                start <= address and address + count <= start + size for start, size in self._registered.items()
            )
            self.pageable_copies += not is_registered
            return
        if block.is_freed:
            self._violation(f"pinned memory at {address:#x} is used after it was freed")
        if address + count > block.end:
            self._violation(f"a copy of {count} bytes leaves the pinned memory at {address:#x}")

    def _host_slice(self, address: int, count: int) -> NDArray[np.uint8]:
        block = self._block(self._pinned, address)
        if block is not None and block.is_freed:
            self._violation(f"pinned memory at {address:#x} is used after it was freed", E.cudaErrorIllegalAddress)
        return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)

    def _late_slice(self, address: int, count: int) -> NDArray[np.uint8]:
        """Device memory when the work runs: if it is gone by then, the device faults."""
        return self._device_slice(address, count, "work on a stream", E.cudaErrorIllegalAddress)

    def _device_slice(self, address: int, count: int, who: str, code: cudaError_t) -> NDArray[np.uint8]:
        block = self._block(self._device, address)
        if block is None:
            raise Failed(code)
        if block.is_freed:
            self._violation(f"device memory at {address:#x} is used by {who} after it was freed", code)
        start = address - block.address
        if start + count > block.data.nbytes:
            self._violation(f"{who} of {count} bytes leaves the device memory at {address:#x}", code)
        return block.data[start : start + count]

    # Memory and handles

    def _block(self, blocks: list[Block], address: int) -> Block | None:
        index = bisect_right(blocks, address, key=lambda block: block.address) - 1
        if index < 0 or address >= blocks[index].end:
            return None
        return blocks[index]

    def _free(self, blocks: list[Block], address: int) -> None:
        block = self._block(blocks, address)
        if block is None or block.address != address:
            raise Failed(E.cudaErrorInvalidValue)
        if block.is_freed:
            self._violation(f"the memory at {address:#x} was freed twice")
        for stream in self._streams():
            self._drain(stream)
        block.is_freed = True
        block.data.fill(0xDD)

    @property
    def _free_bytes(self) -> int:
        device = self._current_device
        buffers = sum(block.data.nbytes for block in self._device if block.device == device and not block.is_freed)
        graphs = sum(isinstance(value, Exec) and value.device == device for value in self._handles.values())
        return self.total_bytes - buffers - graphs * self.graph_bytes

    @property
    def _current_device(self) -> int:
        return getattr(self._local, "device", 0)

    def _require_device(self, device: int) -> None:
        if not 0 <= device < self.device_count:
            raise Failed(E.cudaErrorInvalidDevice)

    def _new_handle(self, value: object) -> Handle:
        self._next_handle += 0x10
        self._handles[self._next_handle] = value
        return Handle(self._next_handle)

    def _find(self, handle: Any, kind: type[T]) -> T:
        value = self._handles.get(int(handle)) if handle is not None else None
        if not isinstance(value, kind):
            self._violation(f"{kind.__name__.lower()} {handle!r} does not exist", E.cudaErrorInvalidResourceHandle)
        return value

    def _streams(self) -> list[Stream]:
        return [value for value in self._handles.values() if isinstance(value, Stream)]

    def _event(self, event: Any) -> Event:
        return self._find(event, Event)

    def _stream(self, stream: Any) -> Stream:
        if stream is None or int(stream) in NO_STREAMS:
            for found in self._streams():
                if found.capture is not None:
                    self.violations.append("the legacy stream is used during a capture")
                    self._invalidate(found.capture, E.cudaErrorStreamCaptureImplicit)
            self._violation("the legacy stream is used", E.cudaErrorInvalidResourceHandle)
        return self._find(stream, Stream)

    def _tick(self) -> int:
        self._ticks += 1000
        return self._ticks

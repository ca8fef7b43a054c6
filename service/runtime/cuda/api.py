"""The part of `cuda.bindings.runtime` that this package calls, as types; a test double imitates the same part.

Every function returns a tuple whose first element is the error code; on failure the other elements are None.
Functions are attributes here, because that is what they are in a module. Handles are the binding's own objects:
they convert with `int()`, and passing them on as they are is faster than passing the number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol, SupportsInt, TypeAlias

Code: TypeAlias = IntEnum
"""A `cudaError_t`: true if it is an error."""

Handle: TypeAlias = SupportsInt
"""A native stream, event, graph or executable graph."""


class ErrorCodes(Protocol):
    """The error codes that are not failures where they are expected."""

    cudaErrorNotReady: Code
    cudaErrorNotSupported: Code
    cudaErrorCallRequiresNewerDriver: Code


class MemcpyKinds(Protocol):
    """The directions of a copy."""

    cudaMemcpyHostToDevice: IntEnum
    cudaMemcpyDeviceToHost: IntEnum


class CaptureModes(Protocol):
    """Whose unsafe calls a capture forbids."""

    cudaStreamCaptureModeThreadLocal: IntEnum


class SourceAccessOrders(Protocol):
    """When a batch of copies may read its sources."""

    cudaMemcpySrcAccessOrderStream: IntEnum


class DeviceAttributes(Protocol):
    """What a device can be asked for."""

    cudaDevAttrComputeCapabilityMajor: IntEnum
    cudaDevAttrComputeCapabilityMinor: IntEnum
    cudaDevAttrL2CacheSize: IntEnum


class DeviceProperties(Protocol):
    """The one property that is read: `name: bytes`, UTF-8 without the closing zero."""

    name: bytes


class NodeTypes(Protocol):
    """What a node of a graph does."""

    cudaGraphNodeTypeMemset: IntEnum


class MemsetParameters(Protocol):
    """What a fill in a graph writes: `height` rows of `width` elements of `elementSize` bytes, each of them `value`.

    Rows begin `pitch` bytes after each other; where there is one, the pitch means nothing.
    """

    dst: int
    pitch: int
    value: int
    elementSize: int
    width: int
    height: int


class CopyAttributes(Protocol):
    """How a batch of copies reads its sources; `srcAccessOrder` must be set before use."""

    srcAccessOrder: IntEnum


class RuntimeApi(Protocol):
    """What `check.runtime_api()` gives."""

    cudaError_t: ErrorCodes
    cudaMemcpyKind: MemcpyKinds
    cudaStreamCaptureMode: CaptureModes
    cudaMemcpySrcAccessOrder: SourceAccessOrders
    cudaDeviceAttr: DeviceAttributes
    cudaGraphNodeType: NodeTypes

    cudaEventBlockingSync: int
    cudaEventDisableTiming: int
    cudaHostAllocPortable: int
    cudaHostRegisterPortable: int
    cudaStreamNonBlocking: int

    cudaGetErrorName: Callable[[Code], tuple[Code, bytes]]
    cudaGetErrorString: Callable[[Code], tuple[Code, bytes]]
    cudaGetLastError: Callable[[], tuple[Code]]

    cudaDriverGetVersion: Callable[[], tuple[Code, int]]
    cudaRuntimeGetVersion: Callable[[], tuple[Code, int]]
    cudaGetDeviceCount: Callable[[], tuple[Code, int]]
    cudaSetDevice: Callable[[int], tuple[Code]]
    cudaDeviceGetAttribute: Callable[[IntEnum, int], tuple[Code, int]]
    cudaGetDeviceProperties: Callable[[int], tuple[Code, DeviceProperties]]
    cudaDeviceGetPCIBusId: Callable[[int, int], tuple[Code, bytes]]
    cudaMemGetInfo: Callable[[], tuple[Code, int, int]]

    cudaStreamCreateWithPriority: Callable[[int, int], tuple[Code, Handle]]
    cudaStreamSynchronize: Callable[[Handle], tuple[Code]]
    cudaStreamWaitEvent: Callable[[Handle, Handle, int], tuple[Code]]
    cudaStreamDestroy: Callable[[Handle], tuple[Code]]

    cudaEventCreateWithFlags: Callable[[int], tuple[Code, Handle]]
    cudaEventRecord: Callable[[Handle, Handle], tuple[Code]]
    cudaEventSynchronize: Callable[[Handle], tuple[Code]]
    cudaEventQuery: Callable[[Handle], tuple[Code]]
    cudaEventElapsedTime: Callable[[Handle, Handle], tuple[Code, float]]
    cudaEventDestroy: Callable[[Handle], tuple[Code]]

    cudaHostAlloc: Callable[[int, int], tuple[Code, int]]
    cudaFreeHost: Callable[[int], tuple[Code]]
    cudaMalloc: Callable[[int], tuple[Code, int]]
    cudaFree: Callable[[int], tuple[Code]]
    cudaHostRegister: Callable[[int, int, int], tuple[Code]]
    cudaHostUnregister: Callable[[int], tuple[Code]]

    cudaMemcpyAsync: Callable[[int, int, int, IntEnum, Handle], tuple[Code]]
    cudaMemcpy2DAsync: Callable[[int, int, int, int, int, int, IntEnum, Handle], tuple[Code]]
    cudaMemcpyBatchAsync: Callable[
        [Sequence[int], Sequence[int], Sequence[int], int, Sequence[CopyAttributes], Sequence[int], int, Handle],
        tuple[Code],
    ]
    cudaMemcpyAttributes: Callable[[], CopyAttributes]
    cudaMemsetAsync: Callable[[int, int, int, Handle], tuple[Code]]

    cudaStreamBeginCapture: Callable[[Handle, IntEnum], tuple[Code]]
    cudaStreamEndCapture: Callable[[Handle], tuple[Code, Handle | None]]
    cudaGraphGetNodes: Callable[..., tuple[Code, Sequence[Handle], int]]
    cudaGraphClone: Callable[[Handle], tuple[Code, Handle]]
    cudaGraphNodeGetType: Callable[[Handle], tuple[Code, IntEnum]]
    cudaGraphMemsetNodeGetParams: Callable[[Handle], tuple[Code, MemsetParameters]]
    cudaGraphNodeGetDependencies: Callable[..., tuple[Code, Sequence[Handle], Sequence[object], int]]
    cudaGraphNodeGetDependentNodes: Callable[..., tuple[Code, Sequence[Handle], Sequence[object], int]]
    cudaGraphAddDependencies: Callable[..., tuple[Code]]
    cudaGraphDestroyNode: Callable[[Handle], tuple[Code]]
    cudaGraphInstantiate: Callable[[Handle, int], tuple[Code, Handle]]
    cudaGraphUpload: Callable[[Handle, Handle], tuple[Code]]
    cudaGraphLaunch: Callable[[Handle, Handle], tuple[Code]]
    cudaGraphDestroy: Callable[[Handle], tuple[Code]]
    cudaGraphExecDestroy: Callable[[Handle], tuple[Code]]

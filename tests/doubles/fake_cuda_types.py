"""What the CUDA double is made of: the binding's enums and structures, and what stands behind its handles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInvalidPitchValue = 12
    cudaErrorInsufficientDriver = 35
    cudaErrorCallRequiresNewerDriver = 36
    cudaErrorNoDevice = 100
    cudaErrorInvalidDevice = 101
    cudaErrorInvalidResourceHandle = 400
    cudaErrorIllegalState = 401
    cudaErrorNotReady = 600
    cudaErrorIllegalAddress = 700
    cudaErrorHostMemoryAlreadyRegistered = 712
    cudaErrorHostMemoryNotRegistered = 713
    cudaErrorLaunchFailure = 719
    cudaErrorNotSupported = 801
    cudaErrorStreamCaptureUnsupported = 900
    cudaErrorStreamCaptureInvalidated = 901
    cudaErrorStreamCaptureIsolation = 905
    cudaErrorStreamCaptureImplicit = 906
    cudaErrorCapturedEvent = 907
    cudaErrorStreamCaptureWrongThread = 908
    cudaErrorUnknown = 999


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class cudaStreamCaptureMode(IntEnum):
    cudaStreamCaptureModeGlobal = 0
    cudaStreamCaptureModeThreadLocal = 1
    cudaStreamCaptureModeRelaxed = 2


class cudaMemcpySrcAccessOrder(IntEnum):
    cudaMemcpySrcAccessOrderInvalid = 0
    cudaMemcpySrcAccessOrderStream = 1


class cudaGraphNodeType(IntEnum):
    cudaGraphNodeTypeKernel = 0
    cudaGraphNodeTypeMemcpy = 1
    cudaGraphNodeTypeMemset = 2
    cudaGraphNodeTypeGraph = 4


class cudaDeviceAttr(IntEnum):
    cudaDevAttrL2CacheSize = 38
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76


E = cudaError_t
STICKY = frozenset({E.cudaErrorIllegalAddress, E.cudaErrorLaunchFailure, E.cudaErrorUnknown})

EXPLANATIONS = {
    E.cudaErrorInvalidValue: "invalid argument",
    E.cudaErrorMemoryAllocation: "out of memory",
    E.cudaErrorInvalidPitchValue: "invalid pitch argument",
    E.cudaErrorInsufficientDriver: "CUDA driver version is insufficient for CUDA runtime version",
    E.cudaErrorNoDevice: "no CUDA-capable device is detected",
    E.cudaErrorInvalidDevice: "invalid device ordinal",
    E.cudaErrorInvalidResourceHandle: "invalid resource handle",
    E.cudaErrorIllegalAddress: "an illegal memory access was encountered",
    E.cudaErrorLaunchFailure: "unspecified launch failure",
    E.cudaErrorStreamCaptureUnsupported: "operation not permitted when stream is capturing",
    E.cudaErrorStreamCaptureInvalidated: "operation failed due to a previous error during capture",
}


class Failed(Exception):
    def __init__(self, code: cudaError_t) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass
class cudaMemcpyAttributes:
    srcAccessOrder: IntEnum = cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderInvalid
    flags: int = 0


@dataclass
class cudaMemsetParams:
    dst: int = 0
    pitch: int = 0
    value: int = 0
    elementSize: int = 0
    width: int = 0
    height: int = 0


@dataclass(frozen=True)
class DeviceProperties:
    name: bytes


@dataclass(frozen=True)
class Handle:
    number: int

    def __int__(self) -> int:
        return self.number


@dataclass(eq=False)
class Stream:
    device: int
    priority: int
    queue: deque[Op] = field(default_factory=deque)
    capture: Capture | None = None


@dataclass(eq=False)
class Op:
    stream: Stream
    run: Callable[[], None]
    is_done: bool = False


@dataclass(eq=False)
class Event:
    device: int
    flags: int
    mark: Op | None = None
    time_ns: int | None = None
    is_captured: bool = False


@dataclass(eq=False)
class Capture:
    mode: cudaStreamCaptureMode
    thread: int
    nodes: list[Node] = field(default_factory=list)
    is_invalid: bool = False


@dataclass(eq=False)
class Node:
    """A node, and those that must be done before it; `memset` has what a fill writes where."""

    kind: cudaGraphNodeType
    run: Callable[[], None]
    memset: cudaMemsetParams | None = None
    dependencies: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Graph:
    """The nodes by the numbers of their handles, in the order in which they were added."""

    nodes: dict[int, Node]


@dataclass(eq=False)
class Exec:
    device: int
    nodes: tuple[Callable[[], None], ...]


@dataclass(eq=False)
class Block:
    """A piece of memory; kept after it is freed, so that no other takes its address and late use is noticed."""

    address: int
    data: NDArray[np.uint8]
    device: int
    is_freed: bool = False

    @property
    def end(self) -> int:
        return self.address + self.data.nbytes

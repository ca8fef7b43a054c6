"""The part of `cuda.bindings.driver` that loads and launches kernels: nothing runs, everything is written down."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

from tests.doubles.fake_cuda_types import Handle, cudaError_t


class CUfunction_attribute(IntEnum):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CUtensorMapDataType(IntEnum):
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6


class CUtensorMapInterleave(IntEnum):
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0


class CUtensorMapSwizzle(IntEnum):
    CU_TENSOR_MAP_SWIZZLE_128B = 3


class CUtensorMapL2promotion(IntEnum):
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3


class CUtensorMapFloatOOBfill(IntEnum):
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0


class CUtensorMap:
    """What the emulated copy engine reads; a real one's words are the driver's secret."""

    def __init__(self, *words: int) -> None:
        self.opaque = [*words, *[0] * (16 - len(words))]


class CUDA_KERNEL_NODE_PARAMS:
    """What a graph's node launches; everything is to be set."""

    func = extra = ctx = 0
    kern: Handle
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    sharedMemBytes: int
    kernelParams: int

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.gridDimX, self.gridDimY, self.gridDimZ

    @property
    def block(self) -> tuple[int, int, int]:
        return self.blockDimX, self.blockDimY, self.blockDimZ


class FakeDriver:
    """Stands where the module `cuda.bindings.driver` would.

    Attributes:
        loaded: libraries that are not unloaded, by handle.
        launches: what was enqueued: kernel, grid, block, shared memory, and stream or graph.
        shared_bytes: what kernels were allowed beyond the usual, by name.
        refuses: name of a call that fails from now on.
    """

    CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS
    CUfunction_attribute = CUfunction_attribute
    CUtensorMapDataType = CUtensorMapDataType
    CUtensorMapInterleave = CUtensorMapInterleave
    CUtensorMapSwizzle = CUtensorMapSwizzle
    CUtensorMapL2promotion = CUtensorMapL2promotion
    CUtensorMapFloatOOBfill = CUtensorMapFloatOOBfill
    cuuint32_t = cuuint64_t = int

    def __init__(self) -> None:
        self.loaded: dict[int, bytes] = {}
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], int, int]] = []
        self.parameters: list[int] = []
        self.shared_bytes: dict[str, int] = {}
        self.refuses = ""
        self._entries: dict[int, str] = {}

    def cuLibraryLoadData(self, code: bytes, *options: Any) -> tuple[Any, ...]:
        if self.refuses == "cuLibraryLoadData":
            return cudaError_t.cudaErrorInvalidValue, None
        handle = Handle(0x100 + len(self.loaded))
        self.loaded[int(handle)] = code
        return cudaError_t.cudaSuccess, handle

    def cuLibraryGetKernel(self, library: Handle, name: bytes) -> tuple[Any, ...]:
        if self.refuses == "cuLibraryGetKernel":
            return cudaError_t.cudaErrorInvalidValue, None
        handle = Handle(0x200 + len(self._entries))
        self._entries[int(handle)] = name.decode()
        return cudaError_t.cudaSuccess, handle

    def cuLibraryUnload(self, library: Handle) -> tuple[Any, ...]:
        del self.loaded[int(library)]
        return (cudaError_t.cudaSuccess,)

    def cuKernelSetAttribute(self, attrib: IntEnum, val: int, kernel: Handle, dev: int) -> tuple[Any, ...]:
        if self.refuses == "cuKernelSetAttribute":
            return (cudaError_t.cudaErrorInvalidValue,)
        assert attrib is CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.shared_bytes[self._entries[int(kernel)]] = val
        return (cudaError_t.cudaSuccess,)

    def cuLaunchKernel(self, kernel: int, *rest: int) -> tuple[Any, ...]:
        if self.refuses == "cuLaunchKernel":
            return (cudaError_t.cudaErrorIllegalAddress,)
        grid, block, (shared, stream, parameters, extra) = rest[:3], rest[3:6], rest[6:]
        assert extra == 0
        self.launches.append((self._entries[kernel], grid, block, shared, stream))
        self.parameters.append(parameters)
        return (cudaError_t.cudaSuccess,)

    def cuGraphAddKernelNode(
        self, hGraph: Handle, dependencies: list[Handle], numDependencies: int, nodeParams: CUDA_KERNEL_NODE_PARAMS
    ) -> tuple[Any, ...]:
        if self.refuses == "cuGraphAddKernelNode":
            return cudaError_t.cudaErrorInvalidValue, None
        assert numDependencies == len(dependencies)
        entry = self._entries[int(nodeParams.kern)]
        self.launches.append((entry, nodeParams.grid, nodeParams.block, nodeParams.sharedMemBytes, int(hGraph)))
        return cudaError_t.cudaSuccess, Handle(0x300 + len(self.launches))

    def cuTensorMapEncodeTiled(self, dtype: IntEnum, rank: int, address: int, *rest: Any) -> tuple[Any, ...]:
        dims, strides, box, steps, *modes = rest
        if self.refuses == "cuTensorMapEncodeTiled":
            return cudaError_t.cudaErrorInvalidValue, None
        assert (rank, steps, [mode.name[-4:] for mode in modes]) == (2, [1, 1], ["NONE", "128B", "256B", "NONE"])
        assert address % 16 == strides[0] % 16 == 0
        assert max(box) <= 256
        return cudaError_t.cudaSuccess, CUtensorMap(address, *dims, *strides, *box)

    def argument(self, index: int, kind: Any) -> Any:
        """The last launch's argument, read from where the launch would have read it."""
        places = ctypes.cast(self.parameters[-1], ctypes.POINTER(ctypes.c_void_p))
        return kind.from_address(places[index])

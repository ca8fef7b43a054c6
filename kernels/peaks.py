"""Launches `peaks`: the device's own ceilings, against which everything else is a share."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import Enum

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry, ceil_div
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

_WORD_BYTES = 16
_COPY_BLOCK_WORDS = 1024
_TILED_SHARED_BYTES = 4 * (128 + 256) * 32 * 2
_WGMMA_SHARED_BYTES = 4 * (128 + 256) * 64 * 2 + 1024
_WGMMA_BOX = (128, 64)
"""As in `csrc/peaks.cu` and `csrc/gemm_wgmma.cu`; boxes as rows and columns."""

FMA_FLOPS = 16
"""Floating-point operations of one thread of `peak_fma` in one iteration."""


def prepare_copy(kernels: Kernels, source: DeviceTensor, target: DeviceTensor, *, stream: Stream) -> PreparedCall:
    """The launch that copies UINT8[n] to UINT8[n] on the device; n and both addresses are multiples of 16.

    Raises:
        DeviceError: an argument is not as said.
    """
    require_tensor("source", source, (DType.UINT8,), (None,), kernels=kernels)
    require_tensor("target", target, (DType.UINT8,), source.shape, kernels=kernels)
    if source.nbytes % _WORD_BYTES or source.address % _WORD_BYTES or target.address % _WORD_BYTES:
        raise DeviceError(
            f"{source.nbytes} bytes at {source.address:#x} and {target.address:#x} were to be copied; all three must "
            f"be multiples of {_WORD_BYTES}"
        )
    words = source.nbytes // _WORD_BYTES
    geometry = Geometry((ceil_div(words, _COPY_BLOCK_WORDS), 1, 1), (256, 1, 1))
    arguments = [*pointers(source, target), ctypes.c_uint64(words)]
    return kernels.prepare("peak_copy", geometry, arguments, stream=stream)


def prepare_fma(kernels: Kernels, out: DeviceTensor, iterations: int, *, stream: Stream) -> PreparedCall:
    """The launch of one thread per element of `out`, FP32[n], n a multiple of 256, each FMA_FLOPS * iterations.

    Raises:
        DeviceError: an argument is not as said.
    """
    require_tensor("out", out, (DType.FP32,), (None,), kernels=kernels)
    if out.shape[0] % 256 or iterations < 1:
        raise DeviceError(f"{out.shape[0]} threads were asked for {iterations} iterations; whole blocks of 256 are run")
    arguments = [*pointers(out), ctypes.c_int(iterations), ctypes.c_float(0.5)]
    geometry = Geometry((out.shape[0] // 256, 1, 1), (256, 1, 1))
    return kernels.prepare("peak_fma", geometry, arguments, stream=stream)


class Gemm(Enum):
    """How a matrix product is made; the value is what its rows, columns and depth are multiples of.

    Attributes:
        NAIVE: the baseline: every warp reads its operands from global memory.
        TILED: through shared memory, on devices that give a block 96 KiB: compute capability 8.0 and later.
        WGMMA: by Hopper's own instructions; compute capability 9.0 alone.
    """

    NAIVE = (16, 32, 16)
    TILED = (128, 256, 32)
    WGMMA = (128, 256, 64)

    @classmethod
    def best_on(cls, kernels: Kernels) -> Gemm:
        """The fastest one that the device has."""
        return cls.WGMMA if kernels.has("gemm_wgmma") else cls.TILED


class ProblemArgument(ctypes.Structure):
    """`struct Problem` of `csrc/gemm_wgmma.cu`."""

    _fields_ = (("rows", ctypes.c_int), ("columns", ctypes.c_int), ("depth", ctypes.c_int))


def prepare_gemm(
    kernels: Kernels, left: DeviceTensor, right: DeviceTensor, out: DeviceTensor, *, how: Gemm, stream: Stream
) -> PreparedCall:
    """The launch of `out = left @ right.T`, sums in FP32.

    Args:
        kernels: hold the sources `peaks` and, for WGMMA, `gemm_wgmma`.
        left: FP16[M, K] device.
        right: FP16[N, K] device.
        out: FP16[M, N] device; overwritten.
        how: which kernel; M, N and K are multiples of its value.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said, the device has not the kernel, or too little shared memory for it.
    """
    require_tensor("left", left, (DType.FP16,), (None, None), kernels=kernels)
    rows, depth = left.shape
    require_tensor("right", right, (DType.FP16,), (None, depth), kernels=kernels)
    columns = right.shape[0]
    require_tensor("out", out, (DType.FP16,), (rows, columns), kernels=kernels)
    sizes = (rows, columns, depth)
    if any(size % part for size, part in zip(sizes, how.value, strict=True)) or any(
        tensor.address % _WORD_BYTES for tensor in (left, right, out)
    ):
        raise DeviceError(
            f"a product of {sizes} was asked for; rows, columns and depth must be multiples of {how.value}, and every "
            f"address one of {_WORD_BYTES}"
        )
    if how is Gemm.WGMMA:
        return _prepare_wgmma(kernels, (left, right, out), sizes, stream=stream)
    arguments = [*pointers(left, right, out), *(ctypes.c_int(size) for size in sizes)]
    if how is Gemm.TILED:
        grid = (rows // how.value[0] * (columns // how.value[1]), 1, 1)
        geometry = Geometry(grid, (256, 1, 1), _TILED_SHARED_BYTES)
        return kernels.prepare("gemm_tiled", geometry, arguments, stream=stream)
    grid = (columns // how.value[1], rows // how.value[0], 1)
    return kernels.prepare("gemm_naive", Geometry(grid, (128, 1, 1)), arguments, stream=stream)


def _prepare_wgmma(
    kernels: Kernels, tensors: Sequence[DeviceTensor], sizes: tuple[int, int, int], *, stream: Stream
) -> PreparedCall:
    if not kernels.has("gemm_wgmma"):
        raise DeviceError("gemm_wgmma is for compute capability 9.0 alone; use Gemm.TILED on this device")
    left, right, out = tensors
    maps = [kernels.tensor_map(matrix, _WGMMA_BOX) for matrix in (left, right)]
    tiles = sizes[0] // Gemm.WGMMA.value[0] * (sizes[1] // Gemm.WGMMA.value[1])
    geometry = Geometry((tiles, 1, 1), (288, 1, 1), _WGMMA_SHARED_BYTES)
    return kernels.prepare("gemm_wgmma", geometry, [*maps, *pointers(out), ProblemArgument(*sizes)], stream=stream)

"""Launches `peaks`: the device's own ceilings, against which everything else is a share."""

from __future__ import annotations

import ctypes

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry, ceil_div
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

_WORD_BYTES = 16
_COPY_BLOCK_WORDS = 1024
_NAIVE_TILE = (16, 32, 16)
_TILE = (128, 256, 32)
_TILE_SHARED_BYTES = 4 * (_TILE[0] + _TILE[1]) * _TILE[2] * 2
"""All as in `csrc/peaks.cu`; tiles as rows, columns and depth."""

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


def prepare_gemm(
    kernels: Kernels, left: DeviceTensor, right: DeviceTensor, out: DeviceTensor, *, is_tiled: bool, stream: Stream
) -> PreparedCall:
    """The launch of `out = left @ right.T`, sums in FP32.

    Args:
        kernels: hold the source `peaks`.
        left: FP16[M, K] device.
        right: FP16[N, K] device.
        out: FP16[M, N] device; overwritten.
        is_tiled: through shared memory: M, N and K multiples of 128, 256 and 32, on devices that give a block 96 KiB
            (all from compute capability 8.0 on); otherwise the naive baseline: multiples of 16, 32 and 16.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said, or the device has too little shared memory.
    """
    require_tensor("left", left, (DType.FP16,), (None, None), kernels=kernels)
    rows, depth = left.shape
    require_tensor("right", right, (DType.FP16,), (None, depth), kernels=kernels)
    columns = right.shape[0]
    require_tensor("out", out, (DType.FP16,), (rows, columns), kernels=kernels)
    tile = _TILE if is_tiled else _NAIVE_TILE
    sizes = (rows, columns, depth)
    if any(size % part for size, part in zip(sizes, tile, strict=True)) or any(
        tensor.address % _WORD_BYTES for tensor in (left, right, out)
    ):
        raise DeviceError(f"a product of {sizes} was asked for; rows, columns and depth must be multiples of {tile}")
    arguments = [*pointers(left, right, out), *(ctypes.c_int(size) for size in sizes)]
    if is_tiled:
        grid = (rows // tile[0] * (columns // tile[1]), 1, 1)
        return kernels.prepare("gemm_tiled", Geometry(grid, (256, 1, 1), _TILE_SHARED_BYTES), arguments, stream=stream)
    grid = (columns // tile[1], rows // tile[0], 1)
    return kernels.prepare("gemm_naive", Geometry(grid, (128, 1, 1)), arguments, stream=stream)

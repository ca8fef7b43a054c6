"""Launches `layernorm`: a residual added and the sum normalised, in one pass over memory."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

BLOCK = (256, 1, 1)
MAX_WIDTH = 8192
PACK_BYTES = 16
"""What a thread moves at a time; all of these as in `csrc/layernorm.cu`."""


def epsilon_bits(epsilon: float) -> int:
    """An FP32's bits as the integer that the kernel takes, which is all that a TensorRT plugin can pass."""
    return int.from_bytes(struct.pack("<f", epsilon), "little", signed=True)


@dataclass(frozen=True, slots=True)
class LayerNormWeights:
    """Attributes: gamma, beta: of the rows' type, [D] device; epsilon: added to the variance."""

    gamma: DeviceTensor
    beta: DeviceTensor
    epsilon: float


def prepare_layernorm(
    kernels: Kernels,
    rows: DeviceTensor,
    residual: DeviceTensor,
    weights: LayerNormWeights,
    normalised: DeviceTensor,
    *,
    stream: Stream,
) -> PreparedCall:
    """The launch of `(rows + residual - mean) / sqrt(variance + epsilon) * gamma + beta`, sums in FP32.

    Args:
        kernels: hold the source `layernorm`.
        rows: FP16 or FP32 [R, D] device, at a multiple of 16 bytes; D a multiple of 16 bytes, at most 8192.
        residual: likewise.
        weights: gamma, beta and epsilon.
        normalised: likewise; overwritten. May be `rows` or `residual`.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said.
    """
    require_tensor("rows", rows, (DType.FP16, DType.FP32), (None, None), kernels=kernels)
    width = rows.shape[1]
    tensors = {"residual": residual, "normalised": normalised}
    for name, tensor in tensors.items():
        require_tensor(name, tensor, (rows.dtype,), rows.shape, kernels=kernels)
    for name, tensor in (("gamma", weights.gamma), ("beta", weights.beta)):
        require_tensor(name, tensor, (rows.dtype,), (width,), kernels=kernels)
    places = (rows, residual, weights.gamma, weights.beta, normalised)
    row_bytes = width * rows.dtype.itemsize
    if width > MAX_WIDTH or row_bytes % PACK_BYTES or any(tensor.address % PACK_BYTES for tensor in places):
        raise DeviceError(
            f"rows of {width} elements of {rows.dtype.itemsize} bytes were given; the kernel takes up to {MAX_WIDTH}, "
            f"whose bytes and addresses are multiples of {PACK_BYTES}"
        )
    before, after = pointers(*places[:-1]), pointers(normalised)
    arguments = [*before, ctypes.c_int(width), ctypes.c_int(epsilon_bits(weights.epsilon)), *after]
    entry = f"layernorm_{rows.dtype.value.lower()}"
    return kernels.prepare(entry, Geometry((rows.shape[0], 1, 1), BLOCK), arguments, stream=stream)

"""Launches `pad`: token rows of different lengths become a padded batch and its mask."""

from __future__ import annotations

import ctypes

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry, ceil_div
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

BLOCK = (128, 1, 1)


def prepare_pad(
    kernels: Kernels,
    tokens: DeviceTensor,
    starts: DeviceTensor,
    batch: tuple[DeviceTensor, DeviceTensor],
    *,
    pad_token: int,
    stream: Stream,
) -> PreparedCall:
    """The launch that lays the rows out; their lengths may change between launches.

    Args:
        kernels: hold the source `pad`.
        tokens: INT32 or INT64 [T] device, the rows one after another; T is the most there will ever be.
        starts: INT32[N + 1] device: row i is tokens[starts[i]] up to tokens[starts[i + 1]]; cut after S tokens.
        batch: ids and mask, each of the tokens' type, [N, S] device; overwritten. The mask is 1 at tokens, else 0.
        pad_token: id where a row has ended.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said.
    """
    ids, mask = batch
    require_tensor("tokens", tokens, (DType.INT32, DType.INT64), (None,), kernels=kernels)
    require_tensor("ids", ids, (tokens.dtype,), (None, None), kernels=kernels)
    size, width = ids.shape
    require_tensor("mask", mask, (tokens.dtype,), (size, width), kernels=kernels)
    require_tensor("starts", starts, (DType.INT32,), (size + 1,), kernels=kernels)
    if not -(1 << 31) <= pad_token < 1 << 31 or tokens.shape[0] >= 1 << 31:
        raise DeviceError(f"pad token {pad_token}, {tokens.shape[0]} tokens: both must fit 32 bits")
    arguments = [
        *pointers(tokens, starts, ids, mask),
        ctypes.c_int(tokens.shape[0]),
        ctypes.c_int(width),
        ctypes.c_int(pad_token),
    ]
    geometry = Geometry((ceil_div(width, BLOCK[0]), size, 1), BLOCK)
    return kernels.prepare(f"pad_{tokens.dtype.value.lower()}", geometry, arguments, stream=stream)

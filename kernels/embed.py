"""Launches `embed`: a language model's token vectors become one vector per row."""

from __future__ import annotations

import ctypes

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

BLOCK = (32, 16, 1)
"""Columns and tokens that a block reads at once; as in `csrc/embed.cu`."""


def prepare_embed(
    kernels: Kernels,
    hidden: DeviceTensor,
    mask: DeviceTensor,
    vectors: DeviceTensor,
    *,
    is_normalized: bool,
    stream: Stream,
) -> PreparedCall:
    """The launch that averages each row's unmasked tokens; a row without any becomes zeros.

    Args:
        kernels: hold the source `embed`.
        hidden: FP16 or FP32 [N, S, D] device; tokens that the mask leaves out are not read.
        mask: INT32[N, S] device; a token counts where it is not 0.
        vectors: FP32[N, D] device; overwritten.
        is_normalized: whether vectors get length 1; one shorter than 1e-12 stays as it is.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said.
    """
    require_tensor("hidden", hidden, (DType.FP16, DType.FP32), (None, None, None), kernels=kernels)
    size, tokens, width = hidden.shape
    require_tensor("mask", mask, (DType.INT32,), (size, tokens), kernels=kernels)
    require_tensor("vectors", vectors, (DType.FP32,), (size, width), kernels=kernels)
    arguments = [
        *pointers(hidden, mask, vectors),
        ctypes.c_int(tokens),
        ctypes.c_int(width),
        ctypes.c_int(is_normalized),
    ]
    entry = f"embed_{hidden.dtype.value.lower()}"
    return kernels.prepare(entry, Geometry((size, 1, 1), BLOCK), arguments, stream=stream)

"""Launches `classify`: a classifier's scores become its likeliest classes with their probabilities."""

from __future__ import annotations

import ctypes

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

BLOCK = (256, 1, 1)


def prepare_classify(
    kernels: Kernels, scores: DeviceTensor, best: DeviceTensor, indices: DeviceTensor, *, stream: Stream
) -> PreparedCall:
    """The launch that ranks every row of `scores`, the likeliest class first; of equal scores the lower index.

    Rows whose scores are a distribution already (none negative, their sum 1 within 0.001) keep them, the others go
    through softmax. A row with NaN or +infinity, or of -infinity alone, gives scores of NaN and indices of -1.

    Args:
        kernels: hold the source `classify`.
        scores: FP16 or FP32 [N, C] device.
        best: FP32[N, K] device, K at most C; overwritten.
        indices: INT32[N, K] device; overwritten.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said.
    """
    require_tensor("scores", scores, (DType.FP16, DType.FP32), (None, None), kernels=kernels)
    size, classes = scores.shape
    require_tensor("best", best, (DType.FP32,), (size, None), kernels=kernels)
    top_k = min(best.shape[1], classes)
    require_tensor("best", best, (DType.FP32,), (size, top_k), kernels=kernels)
    require_tensor("indices", indices, (DType.INT32,), (size, top_k), kernels=kernels)
    arguments = [
        *pointers(scores, best, indices),
        ctypes.c_int(classes),
        ctypes.c_int(top_k),
    ]
    entry = f"classify_{scores.dtype.value.lower()}"
    return kernels.prepare(entry, Geometry((size, 1, 1), BLOCK), arguments, stream=stream)

"""What tasks need of a model's tensors, and how messages say what it has instead."""

from __future__ import annotations

from collections.abc import Iterable

from service.tensors import DType, TensorSpec

IMAGE_DTYPES = (DType.FP32, DType.FP16, DType.UINT8)
"""Of inputs that images are written into."""

SCORE_DTYPES = (DType.FP32, DType.FP16, DType.FP64)
"""Of outputs that are read as scores, probabilities, boxes or vectors."""


def dtypes_text(dtypes: Iterable[DType]) -> str:
    """As in `FP32, FP16`."""
    return ", ".join(dtype.value for dtype in dtypes)


def tensors_text(tensors: Iterable[TensorSpec]) -> str:
    """As in `'x' FP32 [batch, 3, 224, width]`: dimensions by the names that [dims] of the card can change."""
    return ", ".join(f"'{tensor.name}' {tensor.dtype.value} [{', '.join(map(str, tensor.dims))}]" for tensor in tensors)

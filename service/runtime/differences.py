"""How far two arrays are apart, whatever types they travel in. Pure functions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from service.bfloat16 import bfloat16_values
from service.tensors import DType, HostArray

FloatArray: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]

FLOAT_DTYPES = frozenset({DType.FP16, DType.BF16, DType.FP32, DType.FP64})


def as_floats(values: HostArray, dtype: DType) -> FloatArray:
    """As float64, or FP32 as it is: an output may have tens of millions of values."""
    if dtype is DType.FP32:
        return values.astype(np.float32, copy=False)
    return (bfloat16_values(values) if dtype is DType.BF16 else values).astype(np.float64)


def largest_difference(wanted: FloatArray, got: FloatArray) -> float:
    """Largest magnitude of the difference; equal infinities and NaN in the same places count as equal."""
    is_same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(wanted - got), where=~is_same, initial=0.0))

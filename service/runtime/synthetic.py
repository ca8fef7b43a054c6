"""Values that any model can take, for runs before the first request."""

from __future__ import annotations

import numpy as np

from service.bfloat16 import bfloat16_bits
from service.tensors import DType, HostArray


def synthetic_values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], scale: float = 1.0) -> HostArray:
    """Values of `dtype` and `shape`: floats in [0, `scale`), integers and bools 0 or 1, BYTES empty."""
    if dtype is DType.BYTES:
        return np.full(shape, b"", np.object_)
    if dtype is DType.BOOL or dtype.is_integer:
        return rng.integers(0, 2, shape, np.uint8).astype(dtype.numpy)
    values = rng.random(shape, np.float32) * np.float32(scale)
    return bfloat16_bits(values) if dtype is DType.BF16 else values.astype(dtype.numpy)

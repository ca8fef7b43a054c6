"""Values that any model can take, for runs before the first request."""

from __future__ import annotations

import numpy as np

from service.bfloat16 import bfloat16_bits
from service.buckets import Bucket, DimSizes
from service.models import ModelSpec
from service.requests import Batch, InferenceRequest, Stamps
from service.tensors import DType, HostArray

SEED = 20240229
"""Of all synthetic values, so that every start-up runs on the same ones."""


def synthetic_values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], scale: float = 1.0) -> HostArray:
    """Values of `dtype` and `shape`: floats in [0, `scale`), integers and bools 0 or 1, BYTES empty.

    Of several integers or bools in a row the first is 1: a mask of zeros alone would leave a model nothing to look at.
    """
    if dtype is DType.BYTES:
        return np.full(shape, b"", np.object_)
    if dtype is DType.BOOL or dtype.is_integer:
        ones = rng.integers(0, 2, shape, np.uint8)
        if shape and shape[-1] > 1:
            ones[..., 0] = 1
        return ones.astype(dtype.numpy)
    values = rng.random(shape, np.float32) * np.float32(scale)
    return bfloat16_bits(values) if dtype is DType.BF16 else values.astype(dtype.numpy)


def synthetic_request(
    spec: ModelSpec, dims: DimSizes, *, rows: int, seed: int = SEED, scale: float = 1.0
) -> InferenceRequest:
    """A request of `rows` rows for every output, which no client waits for; its values are `synthetic_values`."""
    rng = np.random.default_rng(seed)
    sizes = spec.dim_sizes(dims, rows)
    inputs = tuple(synthetic_values(rng, tensor.dtype, tensor.resolve(sizes), scale) for tensor in spec.inputs)
    return InferenceRequest(
        inputs=inputs,
        rows=rows,
        dims=dims,
        outputs=tuple(range(len(spec.outputs))),
        priority=1,
        deadline_ns=0,
        nbytes=sum(values.nbytes for values in inputs),
        stamps=Stamps(0),
    )


def synthetic_batch(spec: ModelSpec, bucket: Bucket) -> Batch:
    """One request that fills the bucket: the same values every time, floats in [0, 1), integers 0 or 1."""
    return Batch(bucket, (synthetic_request(spec, bucket.dims, rows=bucket.padded_size),), bucket.padded_size)

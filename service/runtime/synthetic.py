"""Values that any model can take, and media that its task can, for runs before the first request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.bfloat16 import bfloat16_bits
from service.buckets import Bucket, DimSizes, Form
from service.models import MediaForm, ModelSpec
from service.requests import Batch, InferenceRequest, Stamps
from service.tensors import BATCH_DIM, DType, HostArray

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
    return _request(inputs, rows, dims, output_count=len(spec.outputs))


def media_requests(media: MediaForm, dims: DimSizes, *, rows: int) -> tuple[InferenceRequest, ...]:
    """Requests of media that have `rows` rows together, for every output: what `MediaForm.example` makes."""
    inputs_by_request = media.example(rows, dims)
    requests = tuple(
        _request(inputs, _row_count(media, inputs), dims, output_count=len(media.outputs), form=Form.MEDIA)
        for inputs in inputs_by_request
    )
    assert sum(request.rows for request in requests) == rows, "an example has the rows that it is asked for"
    return requests


def media_rows(media: MediaForm, dims: DimSizes, *, count: int) -> tuple[InferenceRequest, ...]:
    """The same rows as `media_requests` gives, in requests of one row each."""
    return tuple(row for request in media_requests(media, dims, rows=count) for row in split_request(request, 1))


def split_request(request: InferenceRequest, rows: int) -> tuple[InferenceRequest, ...]:
    """The rows of a request as requests of `rows` rows each; the last one takes what is left.

    Inputs are views of the request's. One that is no larger stays whole, for media of one row may lie in inputs whose
    leading dimension counts something else.
    """
    if request.rows <= rows:
        return (request,)
    return tuple(
        replace(
            request,
            inputs=tuple(values[first : first + rows] for values in request.inputs),
            rows=min(rows, request.rows - first),
        )
        for first in range(0, request.rows, rows)
    )


def synthetic_batch(spec: ModelSpec, bucket: Bucket) -> Batch:
    """What fills the bucket, the same every time.

    Of tensors one request, floats in [0, 1), integers 0 or 1; of media as many as their example makes.
    """
    if bucket.form is Form.TENSORS:
        requests: tuple[InferenceRequest, ...] = (synthetic_request(spec, bucket.dims, rows=bucket.padded_size),)
    else:
        assert spec.media is not None, "a bucket of media is known where the model has the form"
        requests = media_requests(spec.media, bucket.dims, rows=bucket.padded_size)
    return Batch(bucket, requests, bucket.padded_size)


def _request(
    inputs: tuple[HostArray, ...], rows: int, dims: DimSizes, *, output_count: int, form: Form = Form.TENSORS
) -> InferenceRequest:
    """A request for every output, which no client waits for."""
    return InferenceRequest(
        inputs=inputs,
        rows=rows,
        dims=dims,
        outputs=tuple(range(output_count)),
        priority=1,
        deadline_ns=0,
        nbytes=sum(values.nbytes for values in inputs),
        stamps=Stamps(0),
        form=form,
    )


def _row_count(media: MediaForm, inputs: tuple[HostArray, ...]) -> int:
    with_rows = (values for tensor, values in zip(media.inputs, inputs, strict=True) if tensor.dims[:1] == (BATCH_DIM,))
    return len(next(with_rows))

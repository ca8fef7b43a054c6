"""Requests and batches of real tensors, for tests that run a lane."""

from __future__ import annotations

import numpy as np

from service.buckets import Bucket
from service.models import ModelSpec
from service.requests import Batch, InferenceRequest, Stamps
from service.tensors import HostArray


def request_of(
    spec: ModelSpec, *inputs: HostArray, dims: tuple[int, ...] = (), outputs: tuple[int, ...] | None = None
) -> InferenceRequest:
    """A request of these inputs, for every output unless told which."""
    return InferenceRequest(
        inputs=inputs,
        rows=len(inputs[0]) if spec.has_batch_dim else 1,
        dims=dims,
        outputs=tuple(range(len(spec.outputs))) if outputs is None else outputs,
        priority=1,
        deadline_ns=0,
        nbytes=sum(values.nbytes for values in inputs),
        stamps=Stamps(0),
    )


def batch_of(spec: ModelSpec, *requests: InferenceRequest) -> Batch:
    """The requests in the smallest bucket that holds them all."""
    size = sum(request.rows for request in requests)
    largest_dims = tuple(int(extent) for extent in np.max([request.dims for request in requests], axis=0))
    padded_size, dims = spec.buckets.padded_size(size), spec.buckets.padded_dims(largest_dims)
    assert padded_size is not None
    assert dims is not None
    return Batch(Bucket(padded_size, dims), requests, size)

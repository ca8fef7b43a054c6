"""A batch's inputs hold the requests' rows and padding, and nothing of what was there before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.buckets import Bucket, BucketTable
from service.cards import ModelCard
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.rows import FILLED_AT_ONCE_BYTES, gather, input_plans
from service.tensors import DType, HostArray, TensorSpec
from tests.doubles.onnx_batches import request_of

ROWS = 4
PAD = 7
LEFT_BEHIND = 99


def make_spec(width: int) -> ModelSpec:
    inputs = (TensorSpec("ids", DType.INT64, ("batch", "seq", width)), TensorSpec("one", DType.INT64, ("batch", 2)))
    return ModelSpec(
        name="m",
        version="1",
        platform="onnxruntime_onnx",
        inputs=inputs,
        outputs=(),
        has_batch_dim=True,
        buckets=BucketTable((ROWS,), ("seq",), ((8,),)),
        card=ModelCard(name="m", pad_values={"ids": PAD, "one": PAD}),
    )


def padded(values: HostArray, shape: tuple[int, ...]) -> HostArray:
    whole = np.full(shape, PAD, values.dtype)
    whole[tuple(slice(extent) for extent in values.shape)] = values
    return whole


@pytest.mark.parametrize("width", [1, FILLED_AT_ONCE_BYTES // (8 * ROWS * 8), FILLED_AT_ONCE_BYTES // (8 * ROWS)])
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 8)), min_size=1, max_size=ROWS), st.integers(0, 1000))
def test_rows_and_padding_and_nothing_else(width: int, requests: list[tuple[int, int]], seed: int) -> None:
    spec = make_spec(width)
    rng = np.random.default_rng(seed)
    taken, rows_left = [], ROWS
    for rows, length in requests:
        if rows <= rows_left:
            ids, one = rng.integers(0, 9, (rows, length, width)), rng.integers(0, 9, (rows, 2))
            taken.append(request_of(spec, ids, one, dims=(length,)))
            rows_left -= rows
    host = tuple(np.full(shape, LEFT_BEHIND, np.int64) for shape in ((ROWS, 8, width), (ROWS, 2)))
    gather(Batch(Bucket(ROWS, (8,)), tuple(taken), ROWS - rows_left), input_plans(spec), host)
    ids = np.concatenate([padded(request.inputs[0], (request.rows, 8, width)) for request in taken])
    one = np.concatenate([request.inputs[1] for request in taken])
    np.testing.assert_array_equal(host[0], padded(ids, host[0].shape))
    np.testing.assert_array_equal(host[1], padded(one, host[1].shape))

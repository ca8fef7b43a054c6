"""What runs before the first request: values that any model takes, and media that its task has made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket, DimSizes, Form
from service.models import MediaForm, ModelSpec
from service.runtime.synthetic import media_requests, media_rows, split_request, synthetic_batch
from service.tensors import BATCH_DIM, DType, HostArray, TensorSpec
from tests.doubles.requests import MAX_TEXT_BYTES, make_media_spec, make_spec


def test_synthetic_batch_is_the_same_every_time() -> None:
    spec = make_spec(dims={"width": (4, 8)})
    first, second = (synthetic_batch(spec, Bucket(4, (8,))) for _ in range(2))
    host_x: HostArray = first.requests[0].inputs[0]
    assert (host_x.shape, host_x.dtype) == ((4, 8), DType.FP32.numpy)
    assert host_x.min() >= 0
    assert host_x.max() < 1
    assert len(np.unique(host_x)) > 16
    np.testing.assert_array_equal(host_x, second.requests[0].inputs[0])


def test_a_batch_of_media_is_what_its_example_makes() -> None:
    spec = make_media_spec(max_batch_size=4)
    batch = synthetic_batch(spec, Bucket(4, (), Form.MEDIA))
    assert (batch.size, [request.rows for request in batch.requests]) == (4, [1] * 4)
    assert [request.inputs[0].nbytes for request in batch.requests] == [MAX_TEXT_BYTES - row for row in range(4)]
    assert {(request.form, request.outputs) for request in batch.requests} == {(Form.MEDIA, (0, 1))}
    assert batch.requests[1].nbytes == MAX_TEXT_BYTES - 1 + 4


def example_ids(rows: int, dims: DimSizes) -> tuple[tuple[HostArray, ...], ...]:
    """One request of all rows: the first counts from 0, the next from 1."""
    host_ids = np.add.outer(np.arange(rows), np.arange(dims[0])).astype(np.int64)
    return ((host_ids, np.ones_like(host_ids)),)


def ids_form() -> tuple[ModelSpec, MediaForm]:
    """Media of several rows, all inputs of which have them."""
    spec = make_media_spec(dims={"sequence": (4, 8)})
    assert spec.media is not None
    inputs = tuple(TensorSpec(name, DType.INT64, (BATCH_DIM, "sequence")) for name in ("ids", "mask"))
    media = replace(spec.media, inputs=inputs, example=example_ids)
    return replace(spec, media=media), media


def test_media_of_several_rows_come_as_one_request() -> None:
    spec, _ = ids_form()
    (request,) = synthetic_batch(spec, Bucket(4, (8,), Form.MEDIA)).requests
    assert (request.rows, request.dims, request.inputs[0].shape) == (4, (8,), (4, 8))


def test_their_rows_come_apart_too() -> None:
    _, media = ids_form()
    rows = media_rows(media, (4,), count=3)
    assert [row.rows for row in rows] == [1, 1, 1]
    assert [row.inputs[0].tolist() for row in rows] == [[[0, 1, 2, 3]], [[1, 2, 3, 4]], [[2, 3, 4, 5]]]
    assert all(row.inputs[1].shape == (1, 4) for row in rows)


def test_media_of_one_row_are_never_cut() -> None:
    media = make_media_spec().media
    assert media is not None
    for request in media_requests(media, (), rows=2):
        assert split_request(request, 1) == (request,)


@given(rows=st.integers(1, 9), most=st.integers(1, 12))
def test_a_split_request_has_the_same_rows_in_their_order(rows: int, most: int) -> None:
    _, media = ids_form()
    (whole,) = media_requests(media, (8,), rows=rows)
    parts = split_request(whole, most)
    assert [part.rows for part in parts] == [most] * (rows // most) + [rows % most] * bool(rows % most)
    for index, values in enumerate(whole.inputs):
        np.testing.assert_array_equal(np.concatenate([part.inputs[index] for part in parts]), values)
    assert {part.form for part in parts} == {Form.MEDIA}


def test_an_example_of_other_rows_is_our_own_mistake() -> None:
    media = make_media_spec().media
    assert media is not None
    with pytest.raises(AssertionError, match="the rows that it is asked for"):
        media_requests(replace(media, example=lambda rows, dims: media.example(rows + 1, dims)), (), rows=2)

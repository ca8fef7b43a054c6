"""Requests and specifications for tests that need no real model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.buckets import Bucket, CostTable, DimSizes, Form
from service.cards import BatchingCard, ModelCard
from service.models import MediaForm, ModelSpec, build_spec
from service.requests import InferenceRequest, Stamps
from service.tensors import BATCH_DIM, DType, HostArray, TensorSpec
from service.units import NS_PER_MS

MAX_TEXT_BYTES = 64

NO_FUTURE: Any = None
"""For tests of queue and policy, which never look at a request's future."""


def make_spec(
    *,
    max_batch_size: int = 8,
    dims: dict[str, tuple[int, ...]] | None = None,
    exact: tuple[str, ...] = (),
    batching: BatchingCard | None = None,
    name: str = "m",
) -> ModelSpec:
    """`x: FP32[batch, *dims] -> y` of the same shape; `dims` are bucketed, `exact` ones are not."""
    names = (*(dims or {}), *exact) or (4,)
    tensor_dims = ("n", *names)
    card = ModelCard(
        name=name,
        bucket_sizes=dims or {},
        batching=batching or BatchingCard(max_batch_size=max_batch_size),
    )
    return build_spec(
        card,
        version="1",
        platform="test",
        inputs=(TensorSpec("x", DType.FP32, tensor_dims),),
        outputs=(TensorSpec("y", DType.FP32, tensor_dims),),
    )


def make_media_spec(*, media_sizes: tuple[int, ...] | None = None, **spec: Any) -> ModelSpec:
    """`make_spec` whose media are rows of bytes: `text: UINT8[nbytes]` of one row and its `length` -> their `sum`."""
    made = make_spec(**spec)
    sizes = made.buckets.batch_sizes if media_sizes is None else media_sizes
    media = MediaForm(
        inputs=(TensorSpec("text", DType.UINT8, ("nbytes",)), TensorSpec("length", DType.INT32, (BATCH_DIM, 1))),
        outputs=(TensorSpec("sum", DType.FP32, (BATCH_DIM, 1)), TensorSpec("count", DType.INT64, (BATCH_DIM, 1))),
        batch_sizes=sizes,
        max_row_bytes=MAX_TEXT_BYTES,
        example=example_texts,
    )
    return made.with_media(media)


def example_texts(rows: int, dims: DimSizes) -> tuple[tuple[HostArray, ...], ...]:
    """Texts of one row each, all different, the first of them as long as they may be."""
    return tuple(text_inputs(bytes([1 + row % 9]) * (MAX_TEXT_BYTES - row % MAX_TEXT_BYTES)) for row in range(rows))


def text_outputs(request: InferenceRequest) -> tuple[HostArray, ...]:
    """What a row of media gives: the `sum` of its bytes and their `count`."""
    host_text, host_length = request.inputs
    assert host_length.tolist() == [[len(host_text)]]
    every = np.array([[host_text.sum()]], np.float32), np.array([[len(host_text)]], np.int64)
    return tuple(every[index] for index in request.outputs)


def text_inputs(text: bytes) -> tuple[HostArray, ...]:
    """One row of media, as `make_media_spec` has them."""
    return np.frombuffer(text, np.uint8), np.array([[len(text)]], np.int32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedRequest(InferenceRequest):
    """A request that a test can tell from others."""

    request_id: str


def make_request(
    rows: int = 1,
    *,
    dims: DimSizes = (),
    priority: int = 1,
    deadline_ns: int = 10_000 * NS_PER_MS,
    fill: float = 1.0,
    nbytes: int | None = None,
    request_id: str = "",
    form: Form = Form.TENSORS,
) -> NamedRequest:
    host_x = np.full((rows, *(dims or (4,))), fill, np.float32)
    return NamedRequest(
        inputs=(host_x,),
        rows=rows,
        dims=dims,
        outputs=(0,),
        priority=priority,
        deadline_ns=deadline_ns,
        nbytes=host_x.nbytes if nbytes is None else nbytes,
        stamps=Stamps(0),
        request_id=request_id,
        form=form,
    )


def make_media_request(text: bytes, *, deadline_ns: int = 10_000 * NS_PER_MS) -> InferenceRequest:
    """One row of media, as `make_media_spec` has them, for all outputs."""
    inputs = text_inputs(text)
    return InferenceRequest(
        inputs=inputs,
        rows=1,
        dims=(),
        outputs=(0, 1),
        priority=1,
        deadline_ns=deadline_ns,
        nbytes=sum(values.nbytes for values in inputs),
        stamps=Stamps(0),
        form=Form.MEDIA,
    )


def linear_costs(spec: ModelSpec, *, fixed_us: float, row_us: float) -> CostTable:
    """Cost of a batch: a fixed part and a part per element of its padded volume."""
    return CostTable({b: int((fixed_us + row_us * b.volume) * 1000) for b in spec.buckets.known()})


def costs(by_bucket: dict[tuple[int, ...], float]) -> CostTable:
    """Costs in ms by (padded size, *dims)."""
    return CostTable({Bucket(key[0], key[1:]): int(ms * 1e6) for key, ms in by_bucket.items()})

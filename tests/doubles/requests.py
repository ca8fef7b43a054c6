"""Requests and specifications for tests that need no real model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.buckets import Bucket, CostTable, DimSizes
from service.cards import BatchingCard, ModelCard
from service.models import ModelSpec, build_spec
from service.requests import InferenceRequest, Stamps
from service.tensors import DType, TensorSpec
from service.units import NS_PER_MS

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
    )


def linear_costs(spec: ModelSpec, *, fixed_us: float, row_us: float) -> CostTable:
    """Cost of a batch: a fixed part and a part per element of its padded volume."""
    return CostTable({b: int((fixed_us + row_us * b.volume) * 1000) for b in spec.buckets.known()})


def costs(by_bucket: dict[tuple[int, ...], float]) -> CostTable:
    """Costs in ms by (padded size, *dims)."""
    return CostTable({Bucket(key[0], key[1:]): int(ms * 1e6) for key, ms in by_bucket.items()})

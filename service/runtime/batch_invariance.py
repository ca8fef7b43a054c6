"""The proof that a row's tensors do not depend on its neighbours, nor on the padding beside it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from service.buckets import Bucket, DimSizes, Form, Home
from service.errors import ExecutionFailed, ModelLoadFailed, ServiceError
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.protocol import Lane
from service.runtime.row_agreement import DISTINCT_ROWS, DTYPE_TOLERANCE, disagreement
from service.runtime.synthetic import SEED, synthetic_request
from service.tensors import DType

_log = logging.getLogger(__name__)

PROBE_SIZES = (64, 32, 16, 8, 224, 128, 256, 512, 1)
"""Sizes tried for dimensions without buckets; image models want multiples of 32, sequence models few."""


@dataclass(frozen=True, slots=True)
class Rigour:
    """How much has to be tried, and what may differ.

    Attributes:
        is_every_bucket_tried: else the smallest and the largest batch of each dims, and the others where one fails.
        least_tolerance: of floats, as a share of their peak, whatever the output's type allows.
        row_scale: each of the distinct rows is so many times as large as the one before.
    """

    is_every_bucket_tried: bool
    least_tolerance: float
    row_scale: float


ONE_KERNEL_SET = Rigour(is_every_bucket_tried=False, least_tolerance=0.0, row_scale=8.0)
"""For a backend that runs every bucket with the same code, in the types of the model's tensors.

The magnitudes are far apart, so that a shape or a scale that follows the values shows.
"""

KERNELS_PER_BUCKET = Rigour(is_every_bucket_tried=True, least_tolerance=DTYPE_TOLERANCE[DType.BF16], row_scale=2.0)
"""For a backend whose buckets each have kernels of their own, which may compute in any type behind FP32 tensors.

What holds for one bucket says nothing of the next. The magnitudes stay where half-precision kernels do not overflow.
"""


def check_batch_invariance(lane: Lane, spec: ModelSpec, rigour: Rigour = ONE_KERNEL_SET) -> dict[Bucket, str]:
    """Runs rows alone in the smallest bucket of all known dims, and together in larger ones, and compares them.

    Where dims are served at their exact size, one size that the model can run is tried in their place.

    Each batch of more than two runs one row short, so that padding rows are tried too. What may differ, see
    `row_agreement`. Of the form of tensors alone; media have `media_invariance`. Runs on the lane's thread, after
    `warm_up`.

    Returns:
        The buckets that failed, and why; the others of their dims are good.

    Raises:
        ModelLoadFailed: every batch of more than one row failed, so it is the model that mixes rows and not a bucket;
            or no size was found that could be tried.
        ExecutionFailed: the model failed.
    """
    if spec.buckets.max_size == 1:
        return {}
    problems: dict[Bucket, str | None] = {}
    if spec.buckets.is_exact:
        problems = _check_dims(lane, spec, _runnable_dims(lane, spec), rigour)
    for dims in dict.fromkeys(bucket.dims for bucket in spec.buckets.known() if bucket.form is Form.TENSORS):
        problems |= _check_dims(lane, spec, dims, rigour)
    found = {bucket: problem for bucket, problem in problems.items() if problem is not None}
    if found and (len(found) == len(problems) or spec.buckets.is_exact):
        raise ModelLoadFailed(
            f"{next(iter(found.values()))}, so requests cannot share a batch; "
            "set max_batch_size in [batching] to 0 if the leading dimension is no batch, or to 1"
        )
    return found


def _check_dims(lane: Lane, spec: ModelSpec, dims: DimSizes, rigour: Rigour) -> dict[Bucket, str | None]:
    """What is wrong with each bucket that was tried; nothing of any where requests cannot share a batch at all."""
    rows = [
        synthetic_request(spec, dims, rows=1, seed=SEED + index, scale=rigour.row_scale**index)
        for index in range(DISTINCT_ROWS)
    ]
    smallest, *_ = sizes = spec.buckets.sizes_at(Home(dims))
    alone = [lane.sync(lane.enqueue(Batch(Bucket(smallest, dims), (row,), 1))).outputs[0] for row in rows]
    first = sizes if rigour.is_every_bucket_tried else sorted({smallest, sizes[-1]})
    rest = [size for size in sizes if size not in first]
    problems: dict[Bucket, str | None] = {}
    for padded_size in (*first, *rest):
        if padded_size == 1:
            continue
        if padded_size in rest and not any(problems.values()):
            break
        bucket = Bucket(padded_size, dims)
        size = max(2, padded_size - 1)
        batch = Batch(bucket, tuple(rows[row % len(rows)] for row in range(size)), size)
        try:
            together = lane.sync(lane.enqueue(batch)).outputs
        except ExecutionFailed as error:
            if rigour.is_every_bucket_tried:
                problems[bucket] = error.message
                continue
            # Harmless, for a batch that fails is run again request by request; but every one would be.
            _log.warning("requests of model '%s' cannot share a batch, set max_batch_size = 1: %s", spec.name, error)
            return {}
        problem = disagreement(spec.outputs, bucket, alone, together, rigour.least_tolerance)
        problems[bucket] = None if problem is None else f"model '{spec.name}': {problem}"
    return problems


def _runnable_dims(lane: Lane, spec: ModelSpec) -> DimSizes:
    """Dims that the model can run, with one common size for those that are served exactly."""
    for size in PROBE_SIZES:
        dims = tuple(size if sizes is None else sizes[0] for sizes in spec.buckets.dim_sizes)
        row = synthetic_request(spec, dims, rows=1)
        try:
            lane.sync(lane.enqueue(Batch(Bucket(spec.buckets.batch_sizes[0], dims), (row,), 1)))
        except ServiceError:
            continue
        return dims
    exact = ", ".join(spec.buckets.exact_dims)
    raise ModelLoadFailed(
        f"model '{spec.name}' runs at none of the sizes {list(PROBE_SIZES)} of {exact}, so it cannot be proven that "
        "its rows may share a batch; name sizes in [buckets], or set max_batch_size = 1"
    )

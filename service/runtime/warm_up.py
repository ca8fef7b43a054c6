"""What every lane does before its model is ready, whatever the device.

Every bucket is warmed and measured, and a row's result is proven not to depend on its neighbours.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from service.buckets import Bucket, BucketTable, CostTable, DimSizes
from service.errors import ExecutionFailed, ModelLoadFailed, ServiceError
from service.models import ModelSpec
from service.requests import Batch, Clock
from service.runtime.differences import as_floats, largest_difference
from service.runtime.protocol import Lane
from service.runtime.synthetic import SEED, synthetic_batch, synthetic_request
from service.tensors import DType, HostArray, TensorSpec
from service.units import NS_PER_MS

MAX_REPEATS = 5
REPEAT_BUDGET_NS = 60 * NS_PER_MS
LONG_RUN_NS = 150 * NS_PER_MS

_log = logging.getLogger(__name__)

PROBE_SIZES = (64, 32, 16, 8, 224, 128, 256, 512, 1)
"""Sizes tried for dimensions without buckets; image models want multiples of 32, sequence models few."""

# Not a power of two, so that the pattern of repeated rows never coincides with a batch size.
_DISTINCT_ROWS = 3

# Largest difference as a share of the largest magnitude that the rows alone give: summation order changes with
# the batch size, and a float of b mantissa bits then differs in its last few.
_DTYPE_TOLERANCE = {DType.FP64: 1e-9, DType.FP32: 1e-3, DType.FP16: 1e-2, DType.BF16: 4e-2}
_ABSOLUTE_TOLERANCE = 1e-6


def warm_up(
    lane: Lane, spec: ModelSpec, on_bucket: Callable[[Bucket], None], *, clock: Clock = time.monotonic_ns
) -> CostTable:
    """Warms every known bucket, largest first, and measures a full batch in each.

    A bucket's cost is the median of up to `MAX_REPEATS` batches, fewer once they have taken `REPEAT_BUDGET_NS`
    together; the first run, which warms it, counts only where it takes longer than `LONG_RUN_NS`: there what is
    done once is little beside it, and a second run would double the start-up. Runs on the lane's thread.

    Args:
        lane: a fresh lane.
        spec: its model.
        on_bucket: called after each bucket, on this thread.
        clock: monotonic nanoseconds.

    Returns:
        The costs, by which no bucket is cheaper than one that it covers; empty where no bucket is known beforehand.

    Raises:
        ExecutionFailed: the model cannot run in some bucket.
        ModelLoadFailed: it can, but not as a batch of rows.
    """
    measured_ns: dict[Bucket, int] = {}
    for bucket in spec.buckets.known():
        began_ns = clock()
        lane.warm_up(bucket)
        first_ns = clock() - began_ns
        is_long = first_ns > LONG_RUN_NS
        measured_ns[bucket] = first_ns if is_long else _median_cost_ns(lane, synthetic_batch(spec, bucket))
        on_bucket(bucket)
    return CostTable(without_noise(measured_ns, spec.buckets))


def check_batch_invariance(lane: Lane, spec: ModelSpec) -> None:
    """Proves on the smallest and the largest batch of all known dims that rows give what they give alone.

    Where dims are served at their exact size, one size that the model can run is tried in their place.

    Each batch of more than two runs one row short, so that padding rows are tried too. Floats may differ by the share
    of their peak that the type allows (FP64 1e-9, FP32 1e-3, FP16 1e-2, BF16 4e-2), other types not at all.
    Runs on the lane's thread, after `warm_up`.

    Raises:
        ModelLoadFailed: a row's result depends on its neighbours, or no size was found that could be tried.
        ExecutionFailed: the model failed.
    """
    if spec.buckets.max_size == 1:
        return
    if spec.buckets.is_exact:
        _check_dims(lane, spec, _runnable_dims(lane, spec))
    for dims in dict.fromkeys(bucket.dims for bucket in spec.buckets.known()):
        _check_dims(lane, spec, dims)


def without_noise(measured_ns: Mapping[Bucket, int], buckets: BucketTable) -> dict[Bucket, int]:
    """Costs raised to that of the dearest bucket they cover: a larger batch, or larger dims, is never cheaper."""
    return {
        bucket: max(
            cost_ns
            for smaller, cost_ns in measured_ns.items()
            if smaller.padded_size <= bucket.padded_size and buckets.covers(bucket.dims, smaller.dims)
        )
        for bucket in measured_ns
    }


def _median_cost_ns(lane: Lane, batch: Batch) -> int:
    durations_ns: list[int] = []
    while len(durations_ns) < MAX_REPEATS and sum(durations_ns) < REPEAT_BUDGET_NS:
        timings = lane.sync(lane.enqueue(batch)).timings
        durations_ns.append(max(1, timings.copied_out - timings.started))
    return int(statistics.median(durations_ns))


def _check_dims(lane: Lane, spec: ModelSpec, dims: DimSizes) -> None:
    rows = [
        # Of different magnitudes, so that a shape or a scale that follows the values shows.
        synthetic_request(spec, dims, rows=1, seed=SEED + index, scale=8.0**index)
        for index in range(_DISTINCT_ROWS)
    ]
    smallest, largest = spec.buckets.batch_sizes[0], spec.buckets.batch_sizes[-1]
    alone = [lane.sync(lane.enqueue(Batch(Bucket(smallest, dims), (row,), 1))).outputs[0] for row in rows]
    for padded_size in sorted({smallest, largest} - {1}):
        bucket = Bucket(padded_size, dims)
        size = max(2, padded_size - 1)
        batch = Batch(bucket, tuple(rows[row % len(rows)] for row in range(size)), size)
        try:
            together = lane.sync(lane.enqueue(batch)).outputs
        except ExecutionFailed as error:
            # Harmless, for a batch that fails is run again request by request; but every one would be.
            _log.warning("requests of model '%s' cannot share a batch, set max_batch_size = 1: %s", spec.name, error)
            return
        _check_rows(spec, bucket, alone, together)


def _runnable_dims(lane: Lane, spec: ModelSpec) -> DimSizes:
    """Dims that the model can run, with one common size for those that are served exactly."""
    for size in PROBE_SIZES:
        dims = tuple(size if sizes is None else sizes[0] for sizes in spec.buckets.dim_sizes)
        row = synthetic_request(spec, dims, rows=1, seed=SEED)
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


def _check_rows(
    spec: ModelSpec,
    bucket: Bucket,
    alone: Sequence[tuple[HostArray, ...]],
    together: Sequence[tuple[HostArray, ...]],
) -> None:
    for index, output in enumerate(spec.outputs):
        wanted = [alone[row % len(alone)][index] for row in range(len(together))]
        problem = _disagreement(output, wanted, [outputs[index] for outputs in together])
        if problem is not None:
            raise ModelLoadFailed(
                f"model '{spec.name}': in a batch of {len(together)} rows in bucket {bucket.label}, output "
                f"'{output.name}' {problem}: its rows depend on their neighbours, so requests cannot share a batch; "
                "set max_batch_size in [batching] to 0 if the leading dimension is no batch, or to 1"
            )


def _disagreement(output: TensorSpec, wanted: Sequence[HostArray], got: Sequence[HostArray]) -> str | None:
    """How the rows of one output differ from what they give alone, or None where they agree."""
    for row, (want_row, got_row) in enumerate(zip(wanted, got, strict=True)):
        if want_row.shape != got_row.shape:
            return f"has shape {list(got_row.shape)} for row {row}, alone {list(want_row.shape)}"
        if np.array_equal(want_row, got_row):
            continue
        if output.dtype in {DType.BYTES, DType.BOOL}:
            return f"differs in {np.count_nonzero(want_row != got_row)} of {want_row.size} values"
        allowed = _tolerance(output.dtype, want_row)
        largest = largest_difference(as_floats(want_row, output.dtype), as_floats(got_row, output.dtype))
        if not largest <= allowed:
            return f"differs by up to {largest:.3g}, allowed is {allowed:.3g}"
    return None


def _tolerance(dtype: DType, row: HostArray) -> float:
    """Largest difference allowed: 0 for integers, else a share of the largest finite magnitude in the row alone."""
    if dtype not in _DTYPE_TOLERANCE:
        return 0.0
    wanted = as_floats(row, dtype)
    peak = float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0.0))
    return _DTYPE_TOLERANCE[dtype] * peak + _ABSOLUTE_TOLERANCE

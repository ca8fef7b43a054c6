"""Whether rows answer in company what they answer alone. Pure functions of the answers.

Floats may differ by the share of their peak that their type allows (FP64 1e-9, FP32 1e-3, FP16 1e-2, BF16 4e-2), other
types not at all. What is not a number never agrees with a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.buckets import Bucket
from service.runtime.differences import as_floats, largest_difference
from service.tensors import DType, HostArray, TensorSpec

# Largest difference as a share of the largest magnitude that the rows alone give: summation order changes with
# the batch size, and a float of b mantissa bits then differs in its last few.
DTYPE_TOLERANCE = {DType.FP64: 1e-9, DType.FP32: 1e-3, DType.FP16: 1e-2, DType.BF16: 4e-2}
_ABSOLUTE_TOLERANCE = 1e-6

DISTINCT_ROWS = 3
"""Rows that are run alone, and together over and over. Not a power of two, so that the pattern of repeated rows never
coincides with a batch size."""


def disagreement(
    outputs: Sequence[TensorSpec],
    bucket: Bucket,
    alone: Sequence[tuple[HostArray, ...]],
    together: Sequence[tuple[HostArray, ...]],
    least_tolerance: float,
) -> str | None:
    """How the rows of a batch differ from what they give alone, or None where they agree.

    Args:
        outputs: what every row gives.
        bucket: what the batch ran in.
        alone: the outputs of distinct rows, one row each.
        together: the outputs of the same rows, repeated in this order as often as the batch holds rows.
        least_tolerance: of floats, as a share of their peak, whatever the output's type allows.
    """
    for index, output in enumerate(outputs):
        wanted = [alone[row % len(alone)][index] for row in range(len(together))]
        problem = _difference(output, wanted, [answers[index] for answers in together], least_tolerance)
        if problem is not None:
            return (
                f"in a batch of {len(together)} rows in bucket {bucket.label}, output '{output.name}' {problem}: "
                "its rows depend on their neighbours"
            )
    return None


def _difference(
    output: TensorSpec, wanted: Sequence[HostArray], got: Sequence[HostArray], least_tolerance: float
) -> str | None:
    """How the rows of one output differ from what they give alone, or None where they agree."""
    for row, (want_row, got_row) in enumerate(zip(wanted, got, strict=True)):
        if want_row.shape != got_row.shape:
            return f"has shape {list(got_row.shape)} for row {row}, alone {list(want_row.shape)}"
        if np.array_equal(want_row, got_row):
            continue
        if output.dtype in {DType.BYTES, DType.BOOL}:
            return f"differs in {np.count_nonzero(want_row != got_row)} of {want_row.size} values"
        allowed = _tolerance(output.dtype, want_row, least_tolerance)
        largest = largest_difference(as_floats(want_row, output.dtype), as_floats(got_row, output.dtype))
        if not largest <= allowed:
            return f"differs by up to {largest:.3g}, allowed is {allowed:.3g}"
    return None


def _tolerance(dtype: DType, row: HostArray, least_tolerance: float) -> float:
    """Largest difference allowed: 0 for integers, else a share of the largest finite magnitude in the row alone."""
    if dtype not in DTYPE_TOLERANCE:
        return 0.0
    wanted = as_floats(row, dtype)
    peak = float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0.0))
    return max(DTYPE_TOLERANCE[dtype], least_tolerance) * peak + _ABSOLUTE_TOLERANCE

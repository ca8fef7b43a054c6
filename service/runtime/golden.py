"""A lane's answers beside those of a reference: few distinct rows, repeated until they fill the bucket.

Floats are compared by `similarity`, everything else by the share of equal values. What is not a number never agrees
with a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.buckets import Bucket
from service.errors import ExecutionFailed
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.differences import FLOAT_DTYPES, FloatArray, as_floats, largest_difference
from service.runtime.protocol import Lane
from service.runtime.synthetic import SEED, synthetic_request
from service.tensors import DType, HostArray, TensorSpec

# The largest values of each row. They stay where inputs lie that were normalised: a half-precision engine may
# overflow on more, and would be right to.
_ROW_SCALES = (0.5, 1.0, 2.0)

# Floats this close count as equal: below it there is nothing that a direction could be told from.
_ABSOLUTE_TOLERANCE = 1e-6


class ReferenceFailed(ExecutionFailed):
    """The reference could not answer; it says nothing of the lane."""


class OtherModel(ExecutionFailed):
    """Lane and reference answer with different shapes: they cannot be the same model."""


class Reference(Protocol):
    """Somebody else's answers for the same model."""

    def run(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        """Answers one row.

        Args:
            inputs: in the order and of the types of `ModelSpec.inputs`, each with a leading extent of 1 where the
                model has a batch dimension.

        Returns:
            In the order of `ModelSpec.outputs`; floats as FP16, FP32 or FP64 (never as BF16 bits).

        Raises:
            ReferenceFailed: it cannot run on these shapes.
        """


class RememberingReference:
    """Asks another reference once for each input: every bucket of the same dims is compared on the same rows."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._answers: dict[tuple[tuple[tuple[int, ...], bytes], ...], tuple[HostArray, ...]] = {}

    def run(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        """As `Reference.run`."""
        key = tuple((values.shape, values.tobytes()) for values in inputs)
        if key not in self._answers:
            self._answers[key] = self._reference.run(inputs)
        return self._answers[key]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well a bucket agrees with the reference, where it agrees least.

    Attributes:
        bucket: the bucket.
        output: the output that agrees least.
        cosine: its least `similarity` over all rows; of an output that holds no floats, the least share of equal
            values. 1 is perfect, NaN where nothing could be compared.
        largest_difference: largest magnitude of a difference over all rows and outputs; infinite where one side is
            not a finite number and the other is, or is another one.
    """

    bucket: Bucket
    output: str
    cosine: float
    largest_difference: float

    def problem(self, min_cosine: float) -> str | None:
        """Why the bucket is not good enough for `min_cosine`, or None if it is. NaN never is."""
        if self.cosine >= min_cosine:
            return None
        return (
            f"output '{self.output}' agrees with the reference by {self.cosine:.6f} in bucket {self.bucket.label} "
            f"(largest difference {self.largest_difference:.3g}), min_cosine in [precision] is {min_cosine:g}"
        )


def compare(lane: Lane, reference: Reference, spec: ModelSpec, bucket: Bucket) -> Agreement:
    """Runs one full batch of a warm bucket, or more until each distinct row was run, and compares every row.

    The reference is asked for each of the three distinct rows alone. Runs on the lane's thread, with no ticket open.

    Raises:
        ReferenceFailed: the reference cannot run.
        OtherModel: its outputs have other shapes than the lane's.
        ExecutionFailed: the lane cannot run.
        DeviceError: the device failed.
    """
    rows = [
        synthetic_request(spec, bucket.dims, rows=1, seed=SEED + index, scale=scale)
        for index, scale in enumerate(_ROW_SCALES)
    ]
    wanted = [reference.run(row.inputs) for row in rows]
    answers: list[tuple[int, tuple[HostArray, ...]]] = []
    for first in range(0, len(rows), bucket.padded_size):
        chosen = [(first + offset) % len(rows) for offset in range(bucket.padded_size)]
        batch = Batch(bucket, tuple(rows[index] for index in chosen), len(chosen))
        answers.extend(zip(chosen, lane.sync(lane.enqueue(batch)).outputs, strict=True))
    compared = [
        _compare_output(bucket, output, [(wanted[row][index], got[index]) for row, got in answers])
        for index, output in enumerate(spec.outputs)
    ]
    worst = min(compared, key=lambda each: goodness(each.cosine))
    return Agreement(bucket, worst.output, worst.cosine, max(each.largest_difference for each in compared))


def similarity(wanted: FloatArray, got: FloatArray) -> float:
    """2 a·b / (a·a + b·b): the cosine of arrays that are equally long, and less where they are not.

    The cosine alone calls an answer perfect that is twice as large, and any two single values of one sign. For small
    errors both fall by half the squared relative error.

    Returns:
        At most 1. 0 where a value is not finite and its counterpart is not the same; those that are the same are left
        out, and NaN says that nothing was left.
    """
    is_finite = np.isfinite(wanted) & np.isfinite(got)
    if not is_finite.all():
        if not np.array_equal(wanted[~is_finite], got[~is_finite], equal_nan=True):
            return 0.0
        if not is_finite.any():
            return math.nan
        wanted, got = wanted[is_finite], got[is_finite]
    if largest_difference(wanted, got) <= _ABSOLUTE_TOLERANCE:
        return 1.0
    a, b = wanted.ravel().astype(np.float64), got.ravel().astype(np.float64)
    return float(2.0 * (a @ b) / (a @ a + b @ b))


def _compare_output(bucket: Bucket, output: TensorSpec, rows: Sequence[tuple[HostArray, HostArray]]) -> Agreement:
    """The worst of (wanted, got); a row that a batch gave before, to the bit, is compared once."""
    seen: list[tuple[HostArray, HostArray]] = []
    figures: list[tuple[float, float]] = []
    for wanted, got in rows:
        if wanted.shape != got.shape:
            raise OtherModel(
                f"output '{output.name}' has shape {list(got.shape)} in bucket {bucket.label}, the reference's has "
                f"{list(wanted.shape)}: they are not the same model; build the plan again from the ONNX model beside "
                "it, or take that away"
            )
        if not any(wanted is before and np.array_equal(got, same) for before, same in seen):
            seen.append((wanted, got))
            figures.append(_compare_row(output.dtype, wanted, got))
    cosine = min((cosine for cosine, _ in figures), key=goodness)
    return Agreement(bucket, output.name, cosine, max(largest for _, largest in figures))


def goodness(cosine: float) -> float:
    """The agreement as a number to order by: NaN is worse than all."""
    return -math.inf if math.isnan(cosine) else cosine


def _compare_row(dtype: DType, wanted: HostArray, got: HostArray) -> tuple[float, float]:
    if not wanted.size:
        return 1.0, 0.0
    if dtype not in FLOAT_DTYPES:
        is_equal = wanted == got
        if dtype is DType.BYTES:
            return float(np.mean(is_equal)), 0.0
        return float(np.mean(is_equal)), largest_difference(wanted.astype(np.float64), got.astype(np.float64))
    floats = wanted.astype(np.float64, copy=False), as_floats(got, dtype)
    largest = largest_difference(*floats)
    return similarity(*floats), math.inf if math.isnan(largest) else largest

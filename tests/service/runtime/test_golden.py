from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket
from service.models import ModelSpec
from service.requests import Batch, BatchResult, BatchTimings
from service.runtime.golden import Agreement, OtherModel, RememberingReference, compare, similarity
from service.runtime.protocol import Ticket
from service.tensors import DType, HostArray
from tests.doubles.requests import make_spec

Answer = Callable[[HostArray, int], HostArray]


class AnsweringLane:
    """Answers each row with what `answer` makes of its input and its place in the batch."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.batches: list[Batch] = []

    def enqueue(self, batch: Batch) -> Ticket:
        self.batches.append(batch)
        return batch

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        outputs = tuple((self._answer(request.inputs[0], row),) for row, request in enumerate(ticket.requests))
        return BatchResult(outputs, BatchTimings(0, 0, 0, 1))


class Doubling:
    """The reference `y = 2 x`, as `result` changes it; remembers what it was asked."""

    def __init__(self, result: Callable[[HostArray], HostArray] = lambda y: y) -> None:
        self._result = result
        self.asked: list[HostArray] = []

    def run(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        self.asked.append(inputs[0])
        return (self._result(inputs[0] * np.float32(2)),)


def right(x: HostArray, row: int) -> HostArray:
    return x * np.float32(2)


def wrong_in(row: int, change: Callable[[HostArray], HostArray]) -> Answer:
    return lambda x, at: change(right(x, at)) if at == row else right(x, at)


def compared(answer: Answer, *, padded_size: int = 8, spec: ModelSpec | None = None) -> Agreement:
    return compare(AnsweringLane(answer), Doubling(), spec or make_spec(max_batch_size=8), Bucket(padded_size))  # type: ignore[arg-type]


@pytest.mark.parametrize("padded_size", [1, 2, 4, 8])
def test_a_right_lane_agrees_perfectly_in_every_bucket(padded_size: int) -> None:
    assert compared(right, padded_size=padded_size) == Agreement(Bucket(padded_size), "y", 1.0, 0.0)


@pytest.mark.parametrize(("padded_size", "batches"), [(1, 3), (2, 2), (4, 1), (8, 1)])
def test_three_distinct_rows_fill_whole_batches(padded_size: int, batches: int) -> None:
    lane, reference = AnsweringLane(right), Doubling()
    compare(lane, reference, make_spec(max_batch_size=8), Bucket(padded_size))  # type: ignore[arg-type]
    assert [batch.size for batch in lane.batches] == [padded_size] * batches
    assert len({request.inputs[0].tobytes() for batch in lane.batches for request in batch.requests}) == 3
    assert [asked.shape for asked in reference.asked] == [(1, 4)] * 3
    assert len({int(np.ceil(asked.max() * 2)) for asked in reference.asked}) > 1


@pytest.mark.parametrize("row", range(8))
@pytest.mark.parametrize(
    ("change", "cosine", "largest"),
    [
        pytest.param(lambda y: -y, -1.0, None, id="negated"),
        pytest.param(lambda y: y * np.float32(2), 0.8, None, id="twice as large"),
        pytest.param(lambda y: np.full_like(y, np.nan), 0.0, math.inf, id="not a number"),
        pytest.param(lambda y: np.full_like(y, np.inf), 0.0, math.inf, id="overflow"),
        pytest.param(np.zeros_like, 0.0, None, id="nothing written"),
    ],
)
def test_one_wrong_row_anywhere_is_seen(
    row: int, change: Callable[[HostArray], HostArray], cosine: float, largest: float | None
) -> None:
    agreement = compared(wrong_in(row, change))
    assert agreement.cosine == pytest.approx(cosine)
    assert agreement.largest_difference == largest if largest else agreement.largest_difference > 0.1
    assert agreement.problem(0.9) is not None


def test_the_problem_names_output_bucket_and_figures() -> None:
    agreement = Agreement(Bucket(8, (32,)), "logits", 0.9912345, 0.25)
    assert agreement.problem(0.99) is None
    told = agreement.problem(0.999)
    assert told is not None
    assert all(part in told for part in ("'logits'", "0.991235", "8x32", "0.25", "min_cosine in [precision] is 0.999"))
    assert Agreement(Bucket(1), "y", math.nan, math.inf).problem(-1.0) is not None


@pytest.mark.parametrize("dtype", [DType.INT32, DType.BOOL])
def test_what_is_no_float_counts_by_the_share_of_equal_values(dtype: DType) -> None:
    spec = make_spec()
    spec = replace(spec, outputs=(replace(spec.outputs[0], dtype=dtype),))
    told = np.array([[1, 0, 1, 1]], dtype.numpy)
    other = np.array([[1, 0, 1, 0]], dtype.numpy)
    reference = Doubling(lambda y: told)
    lane = AnsweringLane(lambda x, row: other if row == 1 else told)
    assert compare(lane, reference, spec, Bucket(8)) == Agreement(Bucket(8), "y", 0.75, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "wanted", "got", "share"),
    [
        (DType.BYTES, np.array([[b"a", b"b"]], np.object_), np.array([[b"a", b"c"]], np.object_), 0.5),
        (DType.FP32, np.zeros((1, 0), np.float32), np.zeros((1, 0), np.float32), 1.0),
    ],
    ids=["bytes", "nothing at all"],
)
def test_what_cannot_be_subtracted(dtype: DType, wanted: HostArray, got: HostArray, share: float) -> None:
    spec = make_spec()
    spec = replace(spec, outputs=(replace(spec.outputs[0], dtype=dtype),))
    agreement = compare(AnsweringLane(lambda x, row: got), Doubling(lambda y: wanted), spec, Bucket(4))  # type: ignore[arg-type]
    assert (agreement.cosine, agreement.largest_difference) == (share, 0.0)


def test_a_half_precision_lane_agrees_nearly() -> None:
    spec = make_spec()
    spec = replace(spec, outputs=(replace(spec.outputs[0], dtype=DType.FP16),))
    agreement = compared(lambda x, row: right(x, row).astype(np.float16), spec=spec)
    assert 0.999999 < agreement.cosine < 1
    assert 0 < agreement.largest_difference < 1e-2


def test_other_shapes_are_another_model() -> None:
    with pytest.raises(OtherModel, match=r"has shape \[1, 3\] in bucket 8, the reference's has \[1, 4\]"):
        compared(lambda x, row: right(x, row)[:, :3])


def test_a_reference_that_gives_no_number_proves_nothing() -> None:
    lane = AnsweringLane(lambda x, row: np.full_like(x, np.nan))
    reference = Doubling(lambda y: np.full_like(y, np.nan))
    agreement = compare(lane, reference, make_spec(), Bucket(4))  # type: ignore[arg-type]
    assert math.isnan(agreement.cosine)
    assert agreement.problem(0.0) is not None


def test_masked_places_that_are_infinite_on_both_sides_agree() -> None:
    def mask(y: HostArray) -> HostArray:
        return np.where([[True, False, False, False]], np.float32(-np.inf), y)

    lane = AnsweringLane(lambda x, row: mask(right(x, row)))
    assert compare(lane, Doubling(mask), make_spec(), Bucket(4)).cosine == 1.0  # type: ignore[arg-type]


def test_the_reference_is_asked_once_for_all_buckets() -> None:
    reference = Doubling()
    remembering = RememberingReference(reference)
    for padded_size in (8, 4, 2, 1):
        compare(AnsweringLane(right), remembering, make_spec(), Bucket(padded_size))  # type: ignore[arg-type]
    assert len(reference.asked) == 3
    x = np.ones((1, 4), np.float32)
    assert remembering.run([x])[0][0, 0] == 2
    assert remembering.run([x * 2])[0][0, 0] == 4


def test_masks_and_ids_begin_with_one() -> None:
    spec = make_spec()
    spec = replace(spec, inputs=(replace(spec.inputs[0], dtype=DType.INT64),))
    lane = AnsweringLane(lambda x, row: x)
    reference = Doubling()
    reference.run = lambda inputs: (inputs[0],)  # type: ignore[method-assign]
    compare(lane, reference, spec, Bucket(8))  # type: ignore[arg-type]
    assert all(request.inputs[0][0, 0] == 1 for request in lane.batches[0].requests)


ARRAYS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8).map(np.array)


@given(ARRAYS, st.floats(-4, 4))
def test_similarity_never_exceeds_the_cosine_and_punishes_scale(values: HostArray, factor: float) -> None:
    alike = similarity(values, values * factor)  # type: ignore[arg-type]
    assert -1 - 1e-9 <= alike <= 1
    assert similarity(values, values) == 1  # type: ignore[arg-type]
    if np.abs(values).max() > 1 and abs(factor - 1) > 0.1:
        assert alike == pytest.approx(2 * factor / (1 + factor**2))

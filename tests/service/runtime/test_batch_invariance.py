from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.buckets import Bucket
from service.cards import BatchingCard, PrecisionCard
from service.errors import ExecutionFailed, ModelLoadFailed
from service.requests import Batch, BatchResult, BatchTimings
from service.runtime.batch_invariance import KERNELS_PER_BUCKET, check_batch_invariance
from service.runtime.protocol import Ticket
from service.runtime.warm_up import warm_up
from service.tensors import DType, HostArray
from tests.doubles import onnx_models
from tests.doubles.onnx_lanes import OpenLane, open_lane
from tests.doubles.requests import make_spec
from tests.doubles.scripted_lane import ScriptedLane

__all__ = ["open_lane"]


@pytest.mark.parametrize(("batch", "bucket"), [((1, 4), "4"), ((2, 8), "2"), ((4,), "4")])
def test_rows_that_depend_on_their_neighbours_are_refused(
    open_lane: OpenLane, batch: tuple[int, ...], bucket: str
) -> None:
    spec, lane = open_lane(onnx_models.make_batch_dependent, batch=batch)
    warm_up(lane, spec, lambda bucket: None)
    with pytest.raises(ModelLoadFailed, match=rf"in bucket {bucket}, output 'y' differs by up to") as caught:
        check_batch_invariance(lane, spec)
    assert "max_batch_size in [batching] to 0" in caught.value.message


def test_a_batch_of_one_needs_no_proof(open_lane: OpenLane) -> None:
    spec, lane = open_lane(onnx_models.make_batch_dependent, batch=(1,))
    warm_up(lane, spec, lambda bucket: None)
    check_batch_invariance(lane, spec)


def in_bucket(bucket: Bucket, error: float) -> Callable[[Batch], float]:
    return lambda batch: error if batch.bucket == bucket and batch.size > 1 else 0.0


def test_a_bucket_in_which_rows_mix_is_told_and_the_others_are_good() -> None:
    lane = ScriptedLane(lambda bucket: 1, in_bucket(Bucket(4), 0.5))
    found = check_batch_invariance(lane, make_spec(max_batch_size=8), KERNELS_PER_BUCKET)
    assert list(found) == [Bucket(4)]
    assert "in a batch of 3 rows in bucket 4, output 'y' differs by up to" in found[Bucket(4)]


def test_the_same_code_is_tried_in_the_smallest_and_the_largest_batch() -> None:
    lane = ScriptedLane(lambda bucket: 1)
    assert check_batch_invariance(lane, make_spec(max_batch_size=8)) == {}
    assert {bucket.padded_size for _, bucket in lane.events} == {1, 8}


def test_where_the_largest_batch_fails_those_between_are_tried() -> None:
    lane = ScriptedLane(lambda bucket: 1, in_bucket(Bucket(8), 0.5))
    assert list(check_batch_invariance(lane, make_spec(max_batch_size=8))) == [Bucket(8)]
    assert {bucket.padded_size for _, bucket in lane.events} == {1, 2, 4, 8}


@pytest.mark.parametrize(("error", "is_found"), [(0.03, False), (1.0, True)])
def test_kernels_may_compute_in_another_type_than_the_tensors(error: float, is_found: bool) -> None:
    lane = ScriptedLane(lambda bucket: 1, in_bucket(Bucket(4), error))
    found = check_batch_invariance(lane, make_spec(max_batch_size=8), KERNELS_PER_BUCKET)
    assert list(found) == ([Bucket(4)] if is_found else [])


def test_only_what_is_served_is_tried() -> None:
    spec = make_spec(max_batch_size=8)
    spec = replace(spec, buckets=spec.buckets.without({Bucket(1), Bucket(8)}))
    lane = ScriptedLane(lambda bucket: 1)
    assert check_batch_invariance(lane, spec, KERNELS_PER_BUCKET) == {}
    assert {bucket.padded_size for _, bucket in lane.events} == {2, 4}


def test_a_bucket_with_kernels_of_its_own_that_cannot_run_a_batch_is_told() -> None:
    class Choosy(ScriptedLane):
        def sync(self, ticket: Ticket) -> BatchResult:
            assert isinstance(ticket, Batch)
            if ticket.bucket == Bucket(2):
                raise ExecutionFailed("no kernel")
            return super().sync(ticket)

    found = check_batch_invariance(Choosy(lambda bucket: 1), make_spec(max_batch_size=8), KERNELS_PER_BUCKET)
    assert found == {Bucket(2): "no kernel"}


def only_in(batch_rows: int, padded_size: int, error: float) -> Callable[[Batch], float]:
    return lambda batch: error if (batch.size, batch.bucket.padded_size) == (batch_rows, padded_size) else 0.0


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        pytest.param(only_in(7, 8, 0.1), True, id="one row short"),
        pytest.param(only_in(7, 8, float("nan")), True, id="not a number"),
        pytest.param(only_in(7, 8, float("inf")), True, id="infinite"),
        pytest.param(only_in(7, 8, 1e-4), False, id="rounding"),
        pytest.param(lambda batch: float("nan"), False, id="not a number alone either"),
        pytest.param(lambda batch: float("-inf"), False, id="infinite alone too"),
    ],
)
def test_what_counts_as_a_difference(error: Callable[[Batch], float], is_refused: bool) -> None:
    lane, spec = ScriptedLane(lambda bucket: 1, error), make_spec(max_batch_size=8)
    found = check_batch_invariance(lane, spec)
    assert list(found) == ([Bucket(8)] if is_refused else [])
    assert all("output 'y' differs by up to" in problem for problem in found.values())


class TextLane(ScriptedLane):
    """Answers with what `answer` makes of a row, by whether the batch holds others too."""

    def __init__(self, answer: Callable[[bool], HostArray]) -> None:
        super().__init__(lambda bucket: 1)
        self._answer = answer

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        outputs = tuple((self._answer(ticket.size > 1),) for _ in ticket.requests)
        return BatchResult(outputs, BatchTimings(0, 0, 0, 1))


def words(*texts: bytes) -> HostArray:
    return np.array([texts], np.object_)


@pytest.mark.parametrize(
    ("dtype", "answer", "told"),
    [
        (
            DType.FP32,
            lambda joined: np.zeros((1, 4 + joined), np.float32),
            r"has shape \[1, 5\] for row 0, alone \[1, 4\]",
        ),
        (DType.BYTES, lambda joined: words(b"a", b"b" if joined else b"c"), "differs in 1 of 2 values"),
        (DType.BOOL, lambda joined: np.array([[joined, joined, True]]), "differs in 2 of 3 values"),
        (DType.INT32, lambda joined: np.int32([[7 + joined]]), "differs by up to 1, allowed is 0"),
        (DType.BYTES, lambda joined: words(b"a", b"b"), None),
        (DType.BOOL, lambda joined: np.array([[True, False]]), None),
    ],
)
def test_every_kind_of_disagreement_is_named(
    dtype: DType, answer: Callable[[bool], HostArray], told: str | None
) -> None:
    spec = make_spec(max_batch_size=8)
    spec = replace(spec, outputs=(replace(spec.outputs[0], dtype=dtype),))
    with nullcontext() if told is None else pytest.raises(ModelLoadFailed, match=f"output 'y' {told}"):
        check_batch_invariance(TextLane(answer), spec)


@pytest.mark.parametrize(("error", "is_refused"), [(1e-7, False), (1e-5, True)])
def test_noise_around_zero_is_no_difference(error: float, is_refused: bool) -> None:
    lane = ScriptedLane(lambda bucket: 1, only_in(7, 8, error), gain=0)
    found = check_batch_invariance(lane, make_spec(max_batch_size=8))
    assert list(found) == ([Bucket(8)] if is_refused else [])


@pytest.mark.parametrize("mode", ["as-is", "fp16", "int8"])
def test_what_an_engine_would_be_built_with_tolerates_no_more(mode: str) -> None:
    """The model is served in the types of its tensors, and they alone decide."""
    lane = ScriptedLane(lambda bucket: 1, only_in(7, 8, 5e-3))
    spec = make_spec(batching=BatchingCard(max_batch_size=8))
    found = check_batch_invariance(lane, replace(spec, card=replace(spec.card, precision=PrecisionCard(mode=mode))))
    assert "allowed is 0.0008" in found[Bucket(8)]


def make_batch_dependent_any_width(path: Path) -> Path:
    return onnx_models.make_batch_dependent(path, dims=("batch", "width"))


def test_rows_of_exact_sizes_are_proven_too(open_lane: OpenLane) -> None:
    spec, lane = open_lane(make_batch_dependent_any_width)
    assert spec.buckets.is_exact
    with pytest.raises(ModelLoadFailed, match="its rows depend on their neighbours"):
        check_batch_invariance(lane, spec)


def test_an_exact_size_that_runs_is_found(open_lane: OpenLane) -> None:
    spec, lane = open_lane(onnx_models.make_identity_any_width)
    check_batch_invariance(lane, spec)


def test_a_model_that_runs_at_no_size_that_is_tried_must_name_its_own() -> None:
    class Choosy(ScriptedLane):
        def sync(self, ticket: Ticket) -> BatchResult:
            raise ExecutionFailed("height must be a multiple of 7")

    with pytest.raises(ModelLoadFailed, match=r"runs at none of the sizes .* of width.*max_batch_size = 1"):
        check_batch_invariance(Choosy(lambda bucket: 1), make_spec(exact=("width",)))


def test_shapes_that_follow_the_values_are_said_and_not_fatal(
    open_lane: OpenLane, caplog: pytest.LogCaptureFixture
) -> None:
    spec, lane = open_lane(onnx_models.make_data_dependent)
    warm_up(lane, spec, lambda bucket: None)
    check_batch_invariance(lane, spec)
    assert "cannot share a batch" in caplog.text

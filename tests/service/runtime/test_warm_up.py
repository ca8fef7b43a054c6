from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from service.buckets import Bucket, BucketTable
from service.cards import BatchingCard, ModelCard, PrecisionCard
from service.errors import ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchResult, BatchTimings
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.onnx.lane import OnnxLane
from service.runtime.protocol import Ticket
from service.runtime.warm_up import check_batch_invariance, synthetic_batch, warm_up, without_noise
from service.tensors import DType, HostArray
from service.units import NS_PER_MS
from tests.doubles import onnx_models
from tests.doubles.clock import ManualClock
from tests.doubles.requests import make_spec

OpenLane = Callable[..., tuple[ModelSpec, OnnxLane]]


@pytest.fixture
def open_lane(tmp_path: Path) -> Iterator[OpenLane]:
    lanes: list[OnnxLane] = []

    def open_model(
        make: Callable[[Path], Path], *, batch: tuple[int, ...] = (1, 4), **buckets: tuple[int, ...]
    ) -> object:
        card = ModelCard(name="m", bucket_sizes={"batch": batch, **buckets})
        path = make(tmp_path / "m.onnx")
        backend = OnnxBackend.open(card, version="1", model_path=path, cpu_threads=1)
        lanes.append(backend.create_lane(0))
        return backend.spec, lanes[-1]

    yield open_model  # type: ignore[misc]
    for lane in lanes:
        lane.close()


class ScriptedLane:
    """Answers `gain * x + error(batch)`, and takes the time that it is told."""

    def __init__(
        self,
        cost_ns: Callable[[Bucket], int],
        error: Callable[[Batch], float] = lambda batch: 0.0,
        *,
        gain: float = 1.0,
        on_warm_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_warm_up = on_warm_up
        self.events: list[tuple[str, Bucket]] = []
        self._cost_ns = cost_ns
        self._error = error
        self._gain = np.float32(gain)

    def warm_up(self, bucket: Bucket) -> None:
        self.events.append(("warm", bucket))
        self._on_warm_up()

    def enqueue(self, batch: Batch) -> Ticket:
        self.events.append(("run", batch.bucket))
        return batch

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        outputs = tuple(
            (self._gain * request.inputs[0] + np.float32(self._error(ticket)),) for request in ticket.requests
        )
        return BatchResult(outputs, BatchTimings(0, 0, 0, self._cost_ns(ticket.bucket)))

    def close(self) -> None:
        self.events.clear()


@pytest.mark.parametrize(("cost_ms", "runs"), [(1, 5), (14, 5), (15, 4), (20, 3), (59, 2), (60, 1), (900, 1)])
def test_repeats_are_bounded_by_number_and_by_time(cost_ms: int, runs: int) -> None:
    lane = ScriptedLane(lambda bucket: cost_ms * NS_PER_MS)
    table = warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None)
    assert lane.events == [("warm", Bucket(1))] + [("run", Bucket(1))] * runs
    assert table.cost_ns(Bucket(1)) == cost_ms * NS_PER_MS


@pytest.mark.parametrize(("first_ms", "runs"), [(150, 5), (151, 0)])
def test_a_long_first_run_is_the_cost_and_is_not_repeated(first_ms: int, runs: int) -> None:
    clock = ManualClock()
    lane = ScriptedLane(lambda bucket: NS_PER_MS, on_warm_up=lambda: clock.advance_ms(first_ms))
    table = warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None, clock=clock)
    assert len(lane.events) == 1 + runs
    assert table.cost_ns(Bucket(1)) == (NS_PER_MS if runs else first_ms * NS_PER_MS)


def test_cost_is_the_median() -> None:
    durations = iter([9, 1, 5, 3, 7])
    lane = ScriptedLane(lambda bucket: next(durations))
    assert warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None).cost_ns(Bucket(1)) == 5


def test_buckets_are_warmed_largest_first_and_told() -> None:
    lane = ScriptedLane(lambda bucket: 100 * NS_PER_MS)
    spec = make_spec(max_batch_size=2, dims={"width": (4, 8)})
    told: list[Bucket] = []
    warm_up(lane, spec, told.append)
    assert told == [Bucket(2, (8,)), Bucket(1, (8,)), Bucket(2, (4,)), Bucket(1, (4,))]
    assert lane.events == [(event, bucket) for bucket in told for event in ("warm", "run")]


def test_exact_sizes_leave_the_table_empty() -> None:
    lane = ScriptedLane(lambda bucket: 1)
    spec = make_spec(exact=("width",))
    assert warm_up(lane, spec, lambda bucket: None).measured_ns == {}
    assert lane.events == []


TABLE = BucketTable((1, 2, 3, 4), ("a", "b"), ((1, 2, 3), (1, 2, 3)))
BUCKETS = st.builds(Bucket, st.integers(1, 4), st.tuples(st.integers(1, 3), st.integers(1, 3)))


@given(st.dictionaries(BUCKETS, st.integers(1, 1000), min_size=1))
def test_no_bucket_is_cheaper_than_one_that_it_covers(measured_ns: dict[Bucket, int]) -> None:
    costs = without_noise(measured_ns, TABLE)
    assert costs.keys() == measured_ns.keys()
    assert all(costs[bucket] >= cost_ns for bucket, cost_ns in measured_ns.items())
    assert set(costs.values()) <= set(measured_ns.values())
    for large in costs:
        for small in costs:
            if small.padded_size <= large.padded_size and TABLE.covers(large.dims, small.dims):
                assert costs[small] <= costs[large]


def test_sequence_model_end_to_end(open_lane: OpenLane) -> None:
    spec, lane = open_lane(onnx_models.make_sequence, sequence=(4, 8))
    table = warm_up(lane, spec, lambda bucket: None)
    assert set(table.measured_ns) == set(spec.buckets.known())
    assert table.cost_ns(Bucket(4, (8,))) >= table.cost_ns(Bucket(1, (4,))) > 0
    check_batch_invariance(lane, spec)


@pytest.mark.parametrize(
    "make",
    [
        onnx_models.make_cnn,
        onnx_models.make_simple,
        onnx_models.make_fp16,
        onnx_models.make_bf16,
        onnx_models.make_bool,
        onnx_models.make_string,
        partial(onnx_models.make_identity, element_type=TensorProto.DOUBLE),
    ],
    ids=["cnn", "int32", "fp16", "bf16", "bool", "string", "fp64"],
)
def test_every_type_warms_up(open_lane: OpenLane, make: Callable[[Path], Path]) -> None:
    spec, lane = open_lane(make)
    warm_up(lane, spec, lambda bucket: None)
    check_batch_invariance(lane, spec)


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


def test_flattened_batch_is_refused_by_the_warm_up(open_lane: OpenLane) -> None:
    spec, lane = open_lane(onnx_models.make_flattening)
    with pytest.raises(ModelLoadFailed, match="max_batch_size = 0"):
        warm_up(lane, spec, lambda bucket: None)


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
    with pytest.raises(ModelLoadFailed, match="output 'y' differs by up to") if is_refused else nullcontext():
        check_batch_invariance(lane, spec)


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
    with pytest.raises(ModelLoadFailed) if is_refused else nullcontext():
        check_batch_invariance(lane, make_spec(max_batch_size=8))


@pytest.mark.parametrize("mode", ["as-is", "fp16", "int8"])
def test_what_an_engine_would_be_built_with_tolerates_no_more(mode: str) -> None:
    """The model is served in the types of its tensors, and they alone decide."""
    lane = ScriptedLane(lambda bucket: 1, only_in(7, 8, 5e-3))
    spec = make_spec(batching=BatchingCard(max_batch_size=8))
    with pytest.raises(ModelLoadFailed, match=r"allowed is 0\.0008"):
        check_batch_invariance(lane, replace(spec, card=replace(spec.card, precision=PrecisionCard(mode=mode))))


def test_synthetic_batch_is_the_same_every_time() -> None:
    spec = make_spec(dims={"width": (4, 8)})
    first, second = (synthetic_batch(spec, Bucket(4, (8,))) for _ in range(2))
    host_x: HostArray = first.requests[0].inputs[0]
    assert (host_x.shape, host_x.dtype) == ((4, 8), DType.FP32.numpy)
    assert host_x.min() >= 0
    assert host_x.max() < 1
    assert len(np.unique(host_x)) > 16
    np.testing.assert_array_equal(host_x, second.requests[0].inputs[0])


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

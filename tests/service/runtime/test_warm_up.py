from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from service.buckets import Bucket, BucketTable, Form, Unserved, UnservedReason
from service.errors import DeviceError, ExecutionFailed, ModelLoadFailed, ServiceError
from service.requests import Batch, BatchResult
from service.runtime.batch_invariance import check_batch_invariance
from service.runtime.protocol import Ticket
from service.runtime.warm_up import warm_up, without_noise
from service.units import NS_PER_MS
from tests.doubles import onnx_models
from tests.doubles.clock import ManualClock
from tests.doubles.onnx_lanes import OpenLane, open_lane
from tests.doubles.requests import make_media_spec, make_spec
from tests.doubles.scripted_lane import ScriptedLane

__all__ = ["open_lane"]


@pytest.mark.parametrize(("cost_ms", "runs"), [(1, 5), (14, 5), (15, 4), (20, 3), (59, 2), (60, 1), (900, 1)])
def test_repeats_are_bounded_by_number_and_by_time(cost_ms: int, runs: int) -> None:
    lane = ScriptedLane(lambda bucket: cost_ms * NS_PER_MS)
    table = warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None).costs
    assert lane.events == [("warm", Bucket(1))] + [("run", Bucket(1))] * runs
    assert table.cost_ns(Bucket(1)) == cost_ms * NS_PER_MS


@pytest.mark.parametrize(("first_ms", "runs"), [(150, 5), (151, 0)])
def test_a_long_first_run_is_the_cost_and_is_not_repeated(first_ms: int, runs: int) -> None:
    clock = ManualClock()
    lane = ScriptedLane(lambda bucket: NS_PER_MS, on_warm_up=lambda: clock.advance_ms(first_ms))
    table = warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None, clock=clock).costs
    assert len(lane.events) == 1 + runs
    assert table.cost_ns(Bucket(1)) == (NS_PER_MS if runs else first_ms * NS_PER_MS)


def test_what_a_device_does_once_is_no_cost() -> None:
    clock = ManualClock()
    lane = ScriptedLane(lambda bucket: NS_PER_MS, on_warm_up=lambda: clock.advance_ms(400))
    warmth = warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None, first_run_counts=False, clock=clock)
    assert warmth.costs.cost_ns(Bucket(1)) == NS_PER_MS


class FailingLane(ScriptedLane):
    """Cannot run the bucket that is named, whichever way it is asked."""

    def __init__(self, bucket: Bucket, error: ServiceError, *, fails_at_once: bool) -> None:
        super().__init__(lambda bucket: NS_PER_MS)
        self._bucket, self._failure, self._fails_at_once = bucket, error, fails_at_once

    def warm_up(self, bucket: Bucket) -> None:
        super().warm_up(bucket)
        if bucket == self._bucket and self._fails_at_once:
            raise self._failure

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        if ticket.bucket == self._bucket:
            raise self._failure
        return super().sync(ticket)


@pytest.mark.parametrize("fails_at_once", [True, False])
@pytest.mark.parametrize("error", [ExecutionFailed("no kernel"), DeviceError("cudaErrorMemoryAllocation")])
def test_a_bucket_that_cannot_run_is_told_and_the_others_are_measured(error: ServiceError, fails_at_once: bool) -> None:
    told: list[Bucket] = []
    lane = FailingLane(Bucket(2), error, fails_at_once=fails_at_once)
    warmth = warm_up(lane, make_spec(max_batch_size=4), told.append)
    assert warmth.unserved == {Bucket(2): Unserved(UnservedReason.CANNOT_RUN, error.message)}
    assert set(warmth.costs.measured_ns) == {Bucket(4), Bucket(1)}
    assert told == [Bucket(4), Bucket(2), Bucket(1)]


def test_a_device_that_is_lost_ends_the_warm_up() -> None:
    lane = FailingLane(Bucket(2), DeviceError("cudaErrorIllegalAddress", is_sticky=True), fails_at_once=True)
    with pytest.raises(DeviceError):
        warm_up(lane, make_spec(max_batch_size=4), lambda bucket: None)


def test_cost_is_the_median() -> None:
    durations = iter([9, 1, 5, 3, 7])
    lane = ScriptedLane(lambda bucket: next(durations))
    assert warm_up(lane, make_spec(max_batch_size=1), lambda bucket: None).costs.cost_ns(Bucket(1)) == 5


def test_buckets_are_warmed_largest_first_and_told() -> None:
    lane = ScriptedLane(lambda bucket: 100 * NS_PER_MS)
    spec = make_spec(max_batch_size=2, dims={"width": (4, 8)})
    told: list[Bucket] = []
    warm_up(lane, spec, told.append)
    assert told == [Bucket(2, (8,)), Bucket(1, (8,)), Bucket(2, (4,)), Bucket(1, (4,))]
    assert lane.events == [(event, bucket) for bucket in told for event in ("warm", "run")]


def test_buckets_of_media_are_warmed_and_measured_after_those_of_tensors() -> None:
    spec = make_media_spec(max_batch_size=2)
    lane = ScriptedLane(lambda bucket: (70 if bucket.form is Form.MEDIA else 100) * NS_PER_MS)
    told: list[Bucket] = []
    costs = warm_up(lane, spec, told.append).costs
    assert told == [Bucket(2), Bucket(1), Bucket(2, (), Form.MEDIA), Bucket(1, (), Form.MEDIA)]
    assert lane.events == [(event, bucket) for bucket in told for event in ("warm", "run")]
    assert [costs.cost_ns(bucket) // NS_PER_MS for bucket in told] == [100, 100, 70, 70]


def test_a_bucket_of_media_that_cannot_run_is_told_alone() -> None:
    broken = Bucket(2, (), Form.MEDIA)
    lane = FailingLane(broken, ExecutionFailed("no kernel"), fails_at_once=True)
    warmth = warm_up(lane, make_media_spec(max_batch_size=2), lambda bucket: None)
    assert warmth.unserved == {broken: Unserved(UnservedReason.CANNOT_RUN, "no kernel")}
    assert set(warmth.costs.measured_ns) == {Bucket(2), Bucket(1), Bucket(1, (), Form.MEDIA)}


def test_exact_sizes_leave_the_table_empty() -> None:
    lane = ScriptedLane(lambda bucket: 1)
    spec = make_spec(exact=("width",))
    assert warm_up(lane, spec, lambda bucket: None).costs.measured_ns == {}
    assert lane.events == []


TABLE = BucketTable((1, 2, 3, 4), ("a", "b"), ((1, 2, 3), (1, 2, 3)), media_sizes=(1, 2, 3, 4))
BUCKETS = st.builds(Bucket, st.integers(1, 4), st.tuples(st.integers(1, 3), st.integers(1, 3)), st.sampled_from(Form))


@given(st.dictionaries(BUCKETS, st.integers(1, 1000), min_size=1))
def test_no_bucket_is_cheaper_than_one_that_it_covers(measured_ns: dict[Bucket, int]) -> None:
    costs = without_noise(measured_ns, TABLE)
    assert costs.keys() == measured_ns.keys()
    assert all(costs[bucket] >= cost_ns for bucket, cost_ns in measured_ns.items())
    assert set(costs.values()) <= set(measured_ns.values())
    for large in costs:
        for small in costs:
            if small.padded_size <= large.padded_size and TABLE.covers(large.home, small.home):
                assert costs[small] <= costs[large]


def test_what_one_form_costs_raises_nothing_of_the_other() -> None:
    measured_ns = {Bucket(4, (1, 1)): 1, Bucket(2, (1, 1), Form.MEDIA): 9, Bucket(1, (1, 1)): 5}
    assert without_noise(measured_ns, TABLE) == {**measured_ns, Bucket(4, (1, 1)): 5}


def test_sequence_model_end_to_end(open_lane: OpenLane) -> None:
    spec, lane = open_lane(onnx_models.make_sequence, sequence=(4, 8))
    table = warm_up(lane, spec, lambda bucket: None).costs
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


def test_flattened_batch_is_refused_by_the_warm_up(open_lane: OpenLane) -> None:
    spec, lane = open_lane(onnx_models.make_flattening)
    with pytest.raises(ModelLoadFailed, match="max_batch_size = 0"):
        warm_up(lane, spec, lambda bucket: None)

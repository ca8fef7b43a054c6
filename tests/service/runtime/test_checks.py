from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from service.buckets import Bucket, Form, Unserved, UnservedReason
from service.errors import ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchResult
from service.runtime.checks import GOLDEN_BUDGET_NS, check_buckets
from service.runtime.golden import ReferenceFailed
from service.runtime.protocol import Ticket
from service.tensors import HostArray
from tests.doubles.clock import ManualClock
from tests.doubles.requests import make_media_spec, make_spec
from tests.doubles.scripted_lane import ScriptedLane


class Identity:
    """The reference `y = x`, which takes `cost_ns` for a row and fails where it is told."""

    def __init__(self, clock: ManualClock, cost_ns: int = 0, *, fails: bool = False) -> None:
        self._clock, self._cost_ns, self._fails = clock, cost_ns, fails
        self.asked: list[tuple[int, ...]] = []

    def run(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        self.asked.append(inputs[0].shape)
        self._clock.now_ns += self._cost_ns
        if self._fails:
            raise ReferenceFailed("no such operator")
        return (inputs[0],)


class Bench:
    def __init__(self, error: Callable[[Batch], float] = lambda batch: 0.0, **reference: object) -> None:
        self.clock = ManualClock()
        self.lane = ScriptedLane(lambda bucket: 1, error)
        self.reference = Identity(self.clock, **reference)  # type: ignore[arg-type]

    def check(self, spec: ModelSpec, *, on_device: bool = True) -> dict[Bucket, Unserved]:
        found = check_buckets(self.lane, spec, lambda: self.reference, on_device=on_device, clock=self.clock)
        return dict(found)


def always_in(bucket: Bucket, error: float = 5.0) -> Callable[[Batch], float]:
    return lambda batch: error if batch.bucket == bucket else 0.0


def test_a_good_model_lacks_nothing() -> None:
    assert Bench().check(make_spec(max_batch_size=8)) == {}


def test_without_a_reference_rows_are_still_held_against_each_other() -> None:
    lane = ScriptedLane(lambda bucket: 1, lambda batch: 5.0 if batch.size == 3 else 0.0)
    found = check_buckets(lane, make_spec(max_batch_size=8), lambda: None, on_device=True)
    assert {bucket: each.reason for bucket, each in found.items()} == {
        Bucket(4): UnservedReason.ROWS_DEPEND_ON_NEIGHBOURS
    }


@pytest.mark.parametrize("bucket", [Bucket(1), Bucket(2), Bucket(8)])
def test_a_bucket_that_is_wrong_by_itself_is_found_and_blames_no_other(bucket: Bucket) -> None:
    """The rows of the smallest bucket are what those of the others are held against."""
    found = Bench(always_in(bucket)).check(make_spec(max_batch_size=8))
    assert list(found) == [bucket]
    assert found[bucket].reason is UnservedReason.DIFFERS_FROM_REFERENCE
    assert "min_cosine in [precision] is 0.999" in found[bucket].detail


def test_what_the_card_tolerates_is_served() -> None:
    spec = make_spec(max_batch_size=8)
    card = replace(spec.card, precision=replace(spec.card.precision, min_cosine=0.0))
    assert Bench(always_in(Bucket(2), 0.01)).check(replace(spec, card=card)) == {}


@pytest.mark.parametrize("cost_ns", [0, GOLDEN_BUDGET_NS], ids=["all compared", "time for one alone"])
def test_a_model_that_is_wrong_in_every_compared_bucket_is_not_loaded(cost_ns: int) -> None:
    wrong = r"wrong in every bucket that was compared: output 'y' agrees .* build its plan again"
    with pytest.raises(ModelLoadFailed, match=wrong):
        Bench(lambda batch: 5.0, cost_ns=cost_ns).check(make_spec(max_batch_size=4))


def test_a_reference_of_other_shapes_is_another_model() -> None:
    bench = Bench()
    bench.reference.run = lambda inputs: (inputs[0][:, :1],)  # type: ignore[method-assign]
    with pytest.raises(ModelLoadFailed, match="they are not the same model; build the plan again"):
        bench.check(make_spec(max_batch_size=4))


def test_the_comparison_ends_with_its_budget_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(cost_ns=-(-GOLDEN_BUDGET_NS // 3))
    with caplog.at_level(logging.INFO):
        assert bench.check(make_spec(max_batch_size=4, dims={"width": (8, 16, 32)})) == {}
    assert bench.reference.asked == [(1, 8)] * 3
    assert "1 of 9 buckets were compared with its reference in 2.0 s; the others are left out" in caplog.text


def test_the_reference_is_asked_once_for_each_row_of_each_dims() -> None:
    bench = Bench()
    bench.check(make_spec(max_batch_size=4, dims={"width": (8, 16)}))
    assert bench.reference.asked == [(1, 8)] * 3 + [(1, 16)] * 3


def test_a_reference_that_fails_blames_no_bucket(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(fails=True)
    assert bench.check(make_spec(max_batch_size=4)) == {}
    assert len(bench.reference.asked) == 1
    assert "is not compared with its reference any more: no such operator" in caplog.text


def test_a_bucket_that_cannot_run_a_batch_of_rows_is_told() -> None:
    class Choosy(ScriptedLane):
        def sync(self, ticket: Ticket) -> BatchResult:
            assert isinstance(ticket, Batch)
            if ticket.bucket == Bucket(2):
                raise ExecutionFailed("no kernel")
            return super().sync(ticket)

    bench = Bench()
    bench.lane = Choosy(lambda bucket: 1)
    assert bench.check(make_spec(max_batch_size=8)) == {Bucket(2): Unserved(UnservedReason.CANNOT_RUN, "no kernel")}


def test_on_the_cpu_one_code_vouches_for_all_batches() -> None:
    bench = Bench()
    found = check_buckets(bench.lane, make_spec(max_batch_size=8), lambda: None, on_device=False)
    assert found == {}
    assert {bucket.padded_size for _, bucket in bench.lane.events} == {1, 8}


def test_the_reference_is_asked_of_tensors_alone() -> None:
    bench = Bench()
    assert bench.check(make_media_spec(max_batch_size=4)) == {}
    assert bench.reference.asked == [(1, 4)] * 3


@pytest.mark.parametrize("on_device", [True, False])
def test_every_bucket_of_media_is_tried_for_rows_that_mix(on_device: bool) -> None:
    broken = Bucket(4, (), Form.MEDIA)
    bench = Bench(lambda batch: 50.0 if batch.bucket == broken and batch.size > 1 else 0.0)
    found = bench.check(make_media_spec(max_batch_size=8), on_device=on_device)
    assert {bucket: each.reason for bucket, each in found.items()} == {broken: UnservedReason.ROWS_DEPEND_ON_NEIGHBOURS}
    assert {bucket.padded_size for _, bucket in bench.lane.events if bucket.form is Form.MEDIA} == {2, 4, 8}


def test_media_that_mix_in_every_bucket_cost_nothing_but_themselves() -> None:
    """Tensors that mix in every bucket say that the model mixes rows; of media their kernels may be the cause."""
    bench = Bench(lambda batch: 50.0 if batch.bucket.form is Form.MEDIA and batch.size > 1 else 0.0)
    found = bench.check(make_media_spec(max_batch_size=4))
    assert set(found) == {Bucket(2, (), Form.MEDIA), Bucket(4, (), Form.MEDIA)}

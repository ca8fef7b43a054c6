"""Lanes made ready: in which order, what is left out, and how many there are in the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from service.batching.lane_count import LANE_LIMIT
from service.batching.lane_pool import LanePool
from service.buckets import Bucket, Form, UnservedReason
from service.cards import LanesCard
from service.errors import DeviceError, ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.repository.start_up import LANES_BUDGET_NS, CutOff, LoadProgress, Phase, Ready, StartUp
from service.requests import Batch, InferenceRequest
from service.runtime.golden import Reference
from service.tensors import HostArray
from service.units import NS_PER_MS
from tests.doubles.paced_backend import PacedBackend
from tests.doubles.requests import make_media_spec, make_spec

ALL_PAY = {count: 1000.0 * count for count in range(1, 100)}
TWO_PAY = {1: 1000.0, 2: 1900.0, 3: 1950.0}


class Doubling:
    def run(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        return (inputs[0] * np.float32(2),)


class Bench:
    def __init__(self, backend: PacedBackend, reference: Reference | None = None) -> None:
        self.backend = backend
        self.pool = LanePool(backend, lambda *_: None)
        self.progress: list[LoadProgress] = []
        self.is_cut_off = threading.Event()
        self.start_up = StartUp(
            backend,
            self.pool,
            open_reference=lambda: reference,
            on_progress=self.progress.append,
            is_cut_off=self.is_cut_off,
            clock=backend.clock,
        )

    def run(self) -> Ready:
        return self.start_up.run(self.backend.clock())


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench() -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(backend: PacedBackend, reference: Reference | None = None) -> Bench:
        made.append(Bench(backend, reference))
        return made[-1]

    yield make
    for bench in made:
        bench.pool.close()


def spec_of(count: int | None = None, max_batch_size: int = 4) -> ModelSpec:
    spec = make_spec(max_batch_size=max_batch_size)
    return replace(spec, card=replace(spec.card, lanes=LanesCard(count=count)))


def break_bucket(backend: PacedBackend, bucket: Bucket, error: Exception | None = None, shift: float = 0.0) -> None:
    """Lets every batch in `bucket` fail, or answer what is wrong by `shift`."""
    create = backend.create_lane

    def create_lane(lane_id: int) -> object:
        lane = create(lane_id)
        sync = lane.sync

        def broken(ticket: object) -> object:
            assert isinstance(ticket, Batch)
            result = sync(ticket)
            if ticket.bucket != bucket:
                return result
            if error is not None:
                raise error
            return replace(result, outputs=tuple((y + np.float32(shift),) for (y,) in result.outputs))

        lane.sync = broken  # type: ignore[method-assign]
        return lane

    backend.create_lane = create_lane  # type: ignore[method-assign,assignment]


def test_each_phase_is_timed_and_told(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(count=1), TWO_PAY)
    backend.warm_up_ns = 5 * NS_PER_MS
    bench = make_bench(backend)
    backend.pass_time(7)
    ready = bench.start_up.run(0)
    assert list(ready.phase_ns) == list(Phase)
    assert ready.phase_ns[Phase.OPEN] == 7
    assert ready.phase_ns[Phase.WARM_UP] >= 15 * NS_PER_MS
    assert ready.phase_ns[Phase.CHECKS] > 0
    assert sum(ready.phase_ns.values()) == backend.clock()
    assert [step.phase for step in bench.progress if step.bucket is None] == [
        Phase.WARM_UP,
        Phase.CHECKS,
        Phase.LANES,
        Phase.LANES,
    ]


@pytest.mark.parametrize(
    ("rates", "max_batch_size", "lanes"),
    [
        pytest.param(TWO_PAY, 4, 2, id="the third does not pay"),
        pytest.param({1: 1000.0, 2: 1001.0}, 4, 1, id="one is enough"),
        pytest.param(ALL_PAY, 4, LANE_LIMIT, id="all of them pay"),
    ],
)
def test_where_the_card_is_silent_as_many_lanes_as_pay_stay(
    make_bench: MakeBench, rates: dict[int, float], max_batch_size: int, lanes: int, caplog: pytest.LogCaptureFixture
) -> None:
    backend = PacedBackend(spec_of(max_batch_size=max_batch_size), rates)
    bench = make_bench(backend)
    with caplog.at_level(logging.INFO):
        bench.run()
    assert len(bench.pool) == backend.alive == lanes
    assert f"{lanes} lanes; items per second by lanes: 1000 / 1000 / 1000; " in caplog.text
    tried = min(lanes + 1, LANE_LIMIT)
    assert backend.warmed == list(backend.spec.buckets.known()) * tried
    assert bench.progress[-1].is_over
    assert bench.progress[-1].done == bench.progress[-1].total == 3 * tried


@pytest.mark.parametrize("count", [1, 3])
def test_the_card_s_number_is_taken_without_measuring(make_bench: MakeBench, count: int) -> None:
    backend = PacedBackend(spec_of(count=count), TWO_PAY)
    backend.lane_count = count
    bench = make_bench(backend)
    bench.run()
    assert len(bench.pool) == count
    assert bench.progress[0].total == 3 * count


def test_without_a_device_nothing_is_measured(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(), ALL_PAY)
    backend.free_bytes = None
    bench = make_bench(backend)
    bench.run()
    assert len(bench.pool) == 1


def test_memory_bounds_the_lanes(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(), ALL_PAY, lane_bytes=600)
    backend.free_bytes = 1199
    bench = make_bench(backend)
    bench.run()
    assert len(bench.pool) == 1


def test_a_lane_that_is_not_to_be_had_ends_the_search(make_bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    bench = make_bench(PacedBackend(spec_of(), ALL_PAY, max_lanes=3))
    with caplog.at_level(logging.INFO):
        bench.run()
    assert len(bench.pool) == 3
    assert "no lane more than 3: cudaErrorMemoryAllocation" in caplog.text


def test_a_lane_that_cannot_be_warmed_is_given_back(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(), ALL_PAY)
    bench = make_bench(backend)
    grow = bench.pool.grow

    def grow_or_fail(count: int) -> None:
        grow(count)
        if count == 3:
            bench.pool.call(2, lambda lane: setattr(lane, "warm_up", fail))

    def fail(bucket: Bucket) -> None:
        raise ExecutionFailed("no memory for its contexts")

    bench.pool.grow = grow_or_fail  # type: ignore[method-assign]
    bench.run()
    assert len(bench.pool) == backend.alive == 2


@pytest.mark.parametrize(
    ("warm_up_ns", "lanes"),
    [
        pytest.param(LANES_BUDGET_NS // 3, {2, 3}, id="a third of the budget each"),
        pytest.param(LANES_BUDGET_NS + 1, {1}, id="not one more"),
    ],
)
def test_time_bounds_the_lanes(
    make_bench: MakeBench, warm_up_ns: int, lanes: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    backend = PacedBackend(spec_of(max_batch_size=1), ALL_PAY)
    backend.warm_up_ns = warm_up_ns
    bench = make_bench(backend)
    with caplog.at_level(logging.INFO):
        bench.run()
    assert len(bench.pool) in lanes
    assert f"no time for a lane more than {len(bench.pool)}, which takes " in caplog.text


def test_a_device_that_is_lost_meanwhile_is_no_reason_for_fewer_lanes(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(), ALL_PAY)

    def lose(request: InferenceRequest) -> Exception | None:
        return DeviceError("cudaErrorIllegalAddress", is_sticky=True) if backend.alive == 2 else None

    backend.fails_on = lose
    with pytest.raises(DeviceError):
        make_bench(backend).run()


def test_a_bucket_that_cannot_run_is_left_out_on_every_lane(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    backend = PacedBackend(spec_of(count=2), TWO_PAY)
    backend.lane_count = 2
    break_bucket(backend, Bucket(4), ExecutionFailed("no kernel"))
    ready = make_bench(backend).run()
    assert {bucket: each.reason for bucket, each in ready.unserved.items()} == {Bucket(4): UnservedReason.CANNOT_RUN}
    assert Bucket(4) not in ready.costs.measured_ns
    assert backend.warmed == [Bucket(4), Bucket(2), Bucket(1), Bucket(2), Bucket(1)]
    assert "bucket 4 is not served: no kernel" in caplog.text


def test_a_bucket_that_differs_from_the_reference_is_left_out(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(count=1), TWO_PAY)
    break_bucket(backend, Bucket(1), shift=3.0)
    ready = make_bench(backend, Doubling()).run()
    assert {bucket: each.reason for bucket, each in ready.unserved.items()} == {
        Bucket(1): UnservedReason.DIFFERS_FROM_REFERENCE
    }


def test_a_model_with_no_bucket_left_is_not_served(make_bench: MakeBench) -> None:
    backend = PacedBackend(spec_of(count=1, max_batch_size=1), TWO_PAY)
    break_bucket(backend, Bucket(1), ExecutionFailed("no kernel"))
    bench = make_bench(backend)
    with pytest.raises(ModelLoadFailed, match="can be served in no bucket: no kernel"):
        bench.run()
    assert bench.progress[-1].is_over


def media_spec_of(max_batch_size: int = 2) -> ModelSpec:
    spec = make_media_spec(max_batch_size=max_batch_size)
    return replace(spec, card=replace(spec.card, lanes=LanesCard(count=1)))


def media_of(padded_size: int) -> Bucket:
    return Bucket(padded_size, (), Form.MEDIA)


def test_both_forms_are_warmed_on_every_lane(make_bench: MakeBench) -> None:
    spec = make_media_spec(max_batch_size=2)
    backend = PacedBackend(spec, TWO_PAY)
    ready = make_bench(backend).run()
    assert backend.warmed == [Bucket(2), Bucket(1), media_of(2), media_of(1)] * 3
    assert set(ready.costs.measured_ns) == set(spec.buckets.known())
    assert ready.spec is spec


def test_a_bucket_of_media_that_cannot_run_is_left_out_alone(make_bench: MakeBench) -> None:
    backend = PacedBackend(media_spec_of(), TWO_PAY)
    break_bucket(backend, media_of(2), ExecutionFailed("no kernel"))
    ready = make_bench(backend).run()
    assert {bucket: each.reason for bucket, each in ready.unserved.items()} == {media_of(2): UnservedReason.CANNOT_RUN}
    assert list(ready.spec.buckets.known()) == [Bucket(2), Bucket(1), media_of(1)]
    assert ready.spec.media is backend.spec.media


def test_without_a_bucket_of_media_the_form_is_gone_and_it_is_said(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    backend = PacedBackend(media_spec_of(), TWO_PAY)
    for size in (1, 2):
        break_bucket(backend, media_of(size), ExecutionFailed("no kernel"))
    ready = make_bench(backend).run()
    assert set(ready.unserved) == {media_of(1), media_of(2)}
    assert ready.spec.media is None
    assert "no bucket of media is left, so task 'tensor' prepares its tensors on the host" in caplog.text


def test_media_are_not_served_where_tensors_of_their_shape_are_wrong(make_bench: MakeBench) -> None:
    """They run the same engine, and nothing but tensors can be compared with a reference."""
    backend = PacedBackend(media_spec_of(), TWO_PAY)
    break_bucket(backend, Bucket(2), shift=3.0)
    ready = make_bench(backend, Doubling()).run()
    assert {bucket: each.reason for bucket, each in ready.unserved.items()} == dict.fromkeys(
        (Bucket(2), media_of(2)), UnservedReason.DIFFERS_FROM_REFERENCE
    )
    assert ready.unserved[media_of(2)].detail.startswith("it shares its engine with tensors, where output 'y' agrees")


def test_media_alone_are_no_model(make_bench: MakeBench) -> None:
    backend = PacedBackend(media_spec_of(max_batch_size=1), TWO_PAY)
    break_bucket(backend, Bucket(1), ExecutionFailed("no kernel"))
    with pytest.raises(ModelLoadFailed, match="can be served in no bucket: no kernel"):
        make_bench(backend).run()


@pytest.mark.parametrize("phase", [Phase.WARM_UP, Phase.CHECKS, Phase.LANES])
def test_it_is_cut_off_between_phases_and_buckets(make_bench: MakeBench, phase: Phase) -> None:
    bench = make_bench(PacedBackend(spec_of(), ALL_PAY))
    told = bench.progress.append

    def on_progress(step: LoadProgress) -> None:
        told(step)
        if step.phase is phase:
            bench.is_cut_off.set()

    bench.start_up._on_progress = on_progress
    with pytest.raises(CutOff):
        bench.run()
    assert bench.progress[-1].phase is phase
    assert bench.progress[-1].is_over

"""Lanes on their threads, around a backend that finishes when the test lets it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import pytest

from service.batching.lane_pool import LanePool, LaneThread, Outcome
from service.buckets import Bucket
from service.device_figures import LaneFigures
from service.errors import DeviceError, ExecutionFailed, InvalidInput, ModelLoadFailed
from service.requests import Batch, BatchResult
from service.runtime.protocol import Lane
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_request, make_spec

WAIT_S = 10


class Done:
    """Keeps outcomes, and the thread that each came on."""

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[tuple[int, Batch, Outcome]] = queue.SimpleQueue()
        self.threads: list[str] = []

    def __call__(self, lane_id: int, batch: Batch, outcome: Outcome) -> None:
        self.threads.append(threading.current_thread().name)
        self._outcomes.put((lane_id, batch, outcome))

    def next(self) -> tuple[int, Batch, Outcome]:
        return self._outcomes.get(timeout=WAIT_S)


class Bench:
    def __init__(self, *, lanes: int = 1, depth: int = 1, held: bool = True) -> None:
        self.backend = HeldBackend(make_spec(), clock=time.monotonic_ns, lane_count=lanes, lane_depth=depth, held=held)
        self.done = Done()
        self.pool = LanePool(self.backend, self.done)

    def begun(self) -> None:
        assert self.backend.begun.acquire(timeout=WAIT_S)


@pytest.fixture
def benches() -> Iterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.backend.let(1000)
        bench.pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lane-")]


def start(benches: list[Bench], **options: int | bool) -> Bench:
    bench = Bench(**options)  # type: ignore[arg-type]
    benches.append(bench)
    bench.pool.grow(bench.backend.lane_count)
    return bench


def batch(fill: float = 1.0) -> Batch:
    return Batch(Bucket(1), (make_request(fill=fill),), 1)


def test_a_batch_comes_back_on_its_lane_s_thread(benches: list[Bench]) -> None:
    bench = start(benches, lanes=2, held=False)
    given = batch(fill=4.0)
    bench.pool.dispatch(1, given)
    lane_id, got, outcome = bench.done.next()
    assert (lane_id, got) == (1, given)
    assert isinstance(outcome, BatchResult)
    assert outcome.outputs[0][0][0, 0] == 8.0
    assert bench.done.threads == ["lane-m-1"]


def test_batches_of_a_lane_end_in_the_order_they_were_given(benches: list[Bench]) -> None:
    for depth in (1, 2, 3):
        bench = start(benches, depth=depth, held=False)
        given = [batch(fill=float(index)) for index in range(20)]
        for one in given:
            bench.pool.dispatch(0, one)
        assert [bench.done.next()[1] for _ in given] == given


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_lane_holds_as_many_batches_as_its_depth(benches: list[Bench], depth: int) -> None:
    bench = start(benches, depth=depth)
    for _ in range(5):
        bench.pool.dispatch(0, batch())
    for _ in range(depth):
        bench.begun()
    assert not bench.backend.begun.acquire(blocking=False)
    bench.backend.let()
    bench.done.next()
    bench.begun()
    assert bench.backend.max_open_count == depth
    bench.backend.let(5)
    for _ in range(4):
        bench.done.next()
    assert bench.backend.max_open_count == depth


def test_an_error_fails_its_batch_and_the_lane_goes_on(benches: list[Bench], caplog: pytest.LogCaptureFixture) -> None:
    bench = start(benches, held=False)
    errors: dict[float, Exception] = {1.0: InvalidInput("index out of bounds"), 2.0: RuntimeError("/secret/path")}
    bench.backend.fails_on = lambda request: errors.get(request.inputs[0][0, 0])
    for fill in (1.0, 2.0, 3.0):
        bench.pool.dispatch(0, batch(fill))
    assert bench.done.next()[2] is errors[1.0]
    unexpected = bench.done.next()[2]
    assert isinstance(unexpected, ExecutionFailed)
    assert "secret" not in unexpected.message
    assert "/secret/path" in caplog.text
    assert isinstance(bench.done.next()[2], BatchResult)


def test_an_error_while_rows_are_copied_in_fails_its_batch_alone(
    benches: list[Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = start(benches, depth=2, held=False)
    lane = bench.pool.call(0, lambda lane: lane)
    enqueue = lane.enqueue

    def failing(one: Batch) -> object:
        if one.requests[0].inputs[0][0, 0] == 1.0:
            raise ExecutionFailed("no room")
        return enqueue(one)

    monkeypatch.setattr(lane, "enqueue", failing)
    first, second = batch(fill=1.0), batch(fill=2.0)
    bench.pool.dispatch(0, first)
    bench.pool.dispatch(0, second)
    assert [(got is first, isinstance(outcome, ExecutionFailed)) for _, got, outcome in (bench.done.next(),)] == [
        (True, True)
    ]
    _, got, outcome = bench.done.next()
    assert got is second
    assert isinstance(outcome, BatchResult)


def test_a_call_runs_on_the_lane_s_thread_after_the_batches_before_it(benches: list[Bench]) -> None:
    bench = start(benches, depth=2)
    bench.pool.dispatch(0, batch())
    bench.pool.dispatch(0, batch())
    bench.backend.let(2)
    counts = bench.pool.call(0, lambda lane: (bench.backend.open_count, threading.current_thread().name))
    assert counts == (0, "lane-m-0")
    assert len(bench.done.threads) == 2


def test_a_call_gives_its_error_to_the_caller_and_the_lane_goes_on(benches: list[Bench]) -> None:
    bench = start(benches, held=False)

    def fail(lane: Lane) -> None:
        raise ModelLoadFailed("not these rows")

    with pytest.raises(ModelLoadFailed, match="not these rows"):
        bench.pool.call(0, fail)
    bench.pool.dispatch(0, batch())
    assert isinstance(bench.done.next()[2], BatchResult)


def test_calls_to_all_lanes_run_at_once(benches: list[Bench]) -> None:
    bench = start(benches, lanes=3, held=False)
    together = threading.Barrier(3)

    def function(lane: Lane) -> str:
        together.wait(WAIT_S)
        return threading.current_thread().name

    assert bench.pool.call_together(function) == ("lane-m-0", "lane-m-1", "lane-m-2")


def test_a_call_to_all_lanes_ends_when_all_are_done_though_one_fails(benches: list[Bench]) -> None:
    bench = start(benches, lanes=2, held=False)
    first_has_failed = threading.Event()
    ended: list[str] = []

    def function(lane: Lane) -> None:
        if threading.current_thread().name == "lane-m-0":
            first_has_failed.set()
            raise ModelLoadFailed("not these rows")
        assert first_has_failed.wait(WAIT_S)
        ended.append("lane-m-1")

    with pytest.raises(ModelLoadFailed, match="not these rows"):
        bench.pool.call_together(function)
    assert ended == ["lane-m-1"]


def test_lanes_can_be_added_and_given_back(benches: list[Bench]) -> None:
    bench = start(benches, lanes=1, held=False)
    bench.pool.grow(3)
    assert len(bench.pool) == 3
    bench.pool.shrink(2)
    assert len(bench.pool) == 2
    assert bench.backend.closed_lanes == 1
    bench.pool.dispatch(1, batch())
    assert isinstance(bench.done.next()[2], BatchResult)
    bench.pool.grow(2)
    bench.pool.shrink(2)
    assert (len(bench.pool), bench.backend.closed_lanes) == (2, 1)


def test_closing_finishes_what_was_given_then_the_lanes_then_the_backend(benches: list[Bench]) -> None:
    bench = start(benches, lanes=2, depth=2)
    for lane_id in (0, 0, 0, 1):
        bench.pool.dispatch(lane_id, batch())
    closed_before_backend: list[int] = []
    close = bench.backend.close

    def close_backend() -> None:
        closed_before_backend.append(bench.backend.closed_lanes)
        close()

    bench.backend.close = close_backend  # type: ignore[method-assign]
    bench.backend.let(4)
    bench.pool.close()
    assert len(bench.done.threads) == 4
    assert closed_before_backend == [2]
    bench.pool.close()
    assert bench.backend.closed_lanes == 2


def test_a_pool_that_was_never_started_closes_its_backend() -> None:
    bench = Bench(lanes=2)
    bench.pool.close()
    assert bench.backend.is_closed
    assert bench.backend.closed_lanes == 0


def test_a_lane_that_cannot_be_made_is_told_and_those_before_it_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(lanes=3)
    create = bench.backend.create_lane
    asked: list[int] = []

    def create_lane(lane_id: int) -> object:
        asked.append(lane_id)
        if lane_id == 1:
            raise ModelLoadFailed("the device is full")
        return create(lane_id)

    monkeypatch.setattr(bench.backend, "create_lane", create_lane)
    with pytest.raises(ModelLoadFailed, match="the device is full"):
        bench.pool.grow(bench.backend.lane_count)
    assert asked == [0, 1]
    assert len(bench.pool) == 1
    bench.pool.close()
    assert bench.backend.closed_lanes == 1
    assert bench.backend.is_closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lane-")]


def test_a_lane_thread_can_be_closed_before_its_start() -> None:
    LaneThread(HeldBackend(make_spec(), clock=time.monotonic_ns), 0, Done()).close()


def test_figures_of_every_lane_are_read_from_any_thread_before_and_after_its_life(benches: list[Bench]) -> None:
    bench = Bench(lanes=2, held=False)
    benches.append(bench)
    assert bench.pool.figures() == ()
    bench.pool.grow(bench.backend.lane_count)
    bench.backend.figures.update({0: LaneFigures(h2d_bytes=7), 1: LaneFigures(h2d_bytes=9)})
    assert [lane.h2d_bytes for lane in bench.pool.figures()] == [7, 9]
    bench.pool.close()
    assert [lane.h2d_bytes for lane in bench.pool.figures()] == [7, 9]


def test_the_weights_are_the_backend_s(benches: list[Bench]) -> None:
    bench = start(benches)
    bench.backend.weights_bytes = 123
    assert bench.pool.weights_bytes == 123


@pytest.mark.parametrize("end", ["shrink", "close"])
def test_a_device_that_is_found_lost_at_the_end_of_a_lane_is_told_and_nothing_more_is_freed(end: str) -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    pool = LanePool(backend, Done())
    pool.grow(2)
    backend.close_fails = DeviceError("cudaErrorIllegalAddress: an illegal memory access", is_sticky=True)
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
        pool.shrink(0) if end == "shrink" else pool.close()
    assert backend.closed_lanes == 1
    assert not backend.is_closed
    backend.close_fails = None
    pool.close()

"""A lane's failures: what falls back, what fails one batch, and what ends the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from queue import SimpleQueue

import numpy as np
import pytest

from service.batching.lane_pool import LanePool
from service.buckets import Bucket
from service.cards import Completion, LanesCard
from service.errors import DeviceError, ExecutionFailed
from service.requests import Batch
from service.runtime.cuda.device import LiveCounts
from service.runtime.trt.copy_threads import CopyThreads
from service.runtime.trt.lane import LANE_DEPTH, TensorRTLane
from service.runtime.trt.launch import ROUNDS
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.trt_cases import LaneCases
from tests.doubles.trt_models import DOUBLE, assert_right, batch_in, in_memory
from tests.service.runtime.trt.conftest import FakeBench, MakeBench, assert_works, batch


class TestLane(LaneCases):
    """What every lane promises, in every generation; the same cases run on a real GPU in `tests/gpu`."""


@contextmanager
def collected(failures: list[DeviceError]) -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        failures.append(error)


@pytest.mark.parametrize(("completion", "sleeps"), [(Completion.BLOCK, 1), (Completion.SPIN, 0)])
def test_how_a_lane_waits(make_bench: MakeBench, completion: Completion, sleeps: int) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double", lanes=LanesCard(completion=completion)))
    events = [bench.api._handles[int(each.done.native)] for each in lane._sets]
    assert [event.flags & bench.api.cudaEventBlockingSync for event in events] == [sleeps] * LANE_DEPTH
    assert_works(bench, lane)


def test_page_locked_rows_go_by_one_call(make_bench: MakeBench) -> None:
    bench = make_bench()
    backend = bench.open("wide")
    lane = bench.lane(backend)
    sent = batch_in(backend.spec, Bucket(8), np.random.default_rng(0), (2, 1, 4))
    with ExitStack() as stack:
        lying = tuple(stack.enter_context(in_memory(bench.cuda, each, "registered")) for each in sent.requests)
        before = bench.api.calls.copy()
        ticket = lane.enqueue(Batch(Bucket(8), lying, sent.size))
        new = bench.api.calls - before
        assert (new["cudaMemcpyBatchAsync"], new["cudaMemcpyAsync"], new["cudaMemsetAsync"]) == (1, 1, 1)
        assert_right("wide", sent, lane.sync(ticket).outputs)
    assert bench.api.pageable_copies == 0


def test_a_large_batch_is_uploaded_while_it_is_gathered(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.runtime.trt.launch.ROUND_BYTES", 1 << 16)
    bench = make_bench()
    backend = bench.open("wide", pad_values={"x": 1.5})
    lane = bench.lane(backend)
    for rows in ((8,), (1, 4, 2), (1,) * 8):
        sent = batch_in(backend.spec, Bucket(8), np.random.default_rng(len(rows)), rows)
        before = bench.api.calls.copy()
        ticket = lane.enqueue(sent)
        assert (bench.api.calls - before)["cudaMemcpyAsync"] == ROUNDS + 1
        assert_right("wide", sent, lane.sync(ticket).outputs)


def test_a_failed_direct_copy_fails_one_batch(make_bench: MakeBench) -> None:
    bench = make_bench()
    backend = bench.open("wide")
    lane = bench.lane(backend)
    sent = batch_in(backend.spec, Bucket(8), np.random.default_rng(0), (3, 2))
    with ExitStack() as stack:
        lying = tuple(stack.enter_context(in_memory(bench.cuda, each, "pinned")) for each in sent.requests)
        direct = Batch(Bucket(8), lying, sent.size)
        for call in ("cudaMemcpyBatchAsync", "cudaMemsetAsync"):
            bench.api.inject(call, E.cudaErrorInvalidValue)
            with pytest.raises(DeviceError, match=call):
                lane.enqueue(direct)
            assert_right("wide", sent, lane.sync(lane.enqueue(direct)).outputs)


def test_copies_overlap_compute(make_bench: MakeBench) -> None:
    """The second batch's upload is on a stream that does not wait for the first batch's kernels."""
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    streams = lane._streams
    assert streams is not None
    first = lane.enqueue(batch(bench, seed=1))
    second = lane.enqueue(batch(bench, seed=2))
    streams.upload.sync()
    queue = bench.api._stream(streams.compute.native).queue
    assert len(queue) > 0
    for ticket in (first, second):
        lane.sync(ticket)


@pytest.mark.parametrize(
    "call", ["cudaMemcpyAsync", "cudaGraphLaunch", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize"]
)
@pytest.mark.parametrize("after", [0, 1])
def test_a_failed_call_fails_one_batch(make_bench: MakeBench, call: str, after: int) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    failures: list[DeviceError] = []
    ticket = lane.enqueue(batch(bench, seed=1))
    bench.api.inject(call, E.cudaErrorInvalidValue, after=after)
    in_flight = [(1, ticket)]
    for seed in (2, 3, 4):
        with collected(failures):
            in_flight.append((seed, lane.enqueue(batch(bench, seed=seed))))
        seed_of_oldest, oldest = in_flight.pop(0)
        with collected(failures):
            assert_right("double", batch(bench, seed=seed_of_oldest), lane.sync(oldest).outputs)
    for seed, ticket in in_flight:
        assert_right("double", batch(bench, seed=seed), lane.sync(ticket).outputs)
    assert [error.is_sticky for error in failures] == [False]
    assert not lane.is_dead
    assert_works(bench, lane)


def test_a_refused_enqueue_fails_one_batch(make_bench: MakeBench) -> None:
    bench = make_bench(models={"double": replace(DOUBLE, is_capturable=False)})
    lane = bench.lane(bench.open("double"))
    bench.world.faults.enqueues = 1
    with pytest.raises(ExecutionFailed, match="a batch of model 'double' in bucket 4: enqueue was told to fail"):
        lane.enqueue(batch(bench))
    assert_works(bench, lane)


def test_a_sticky_error_ends_the_lane(make_bench: MakeBench) -> None:
    bench = make_bench(models={"double": replace(DOUBLE, is_capturable=False)})
    lane = bench.lane(bench.open("double"))
    bench.api.fault_in_next_kernel()
    ticket = lane.enqueue(batch(bench))
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress") as raised:
        lane.sync(ticket)
    assert raised.value.is_sticky
    assert lane.is_dead
    with pytest.raises(DeviceError, match="the GPU is lost to this process: cudaErrorIllegalAddress") as again:
        lane.enqueue(batch(bench))
    assert again.value.is_sticky
    lane.close()
    lane.close()


def test_a_sticky_error_found_while_settling_ends_the_lane(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    bench.api.inject("cudaMemcpyAsync", E.cudaErrorInvalidValue)
    bench.api.inject("cudaStreamSynchronize", E.cudaErrorIllegalAddress)
    words = r"cudaErrorIllegalAddress: .*which was found after: cudaErrorInvalidValue"
    with pytest.raises(DeviceError, match=words) as raised:
        lane.enqueue(batch(bench))
    assert raised.value.is_sticky
    assert lane.is_dead


@pytest.mark.parametrize("step", ["enqueue", "warm_up"])
def test_what_tensorrt_refuses_because_the_device_is_lost_says_so(make_bench: MakeBench, step: str) -> None:
    bench = make_bench(models={"double": replace(DOUBLE, is_capturable=False)})
    lane = bench.lane(bench.open("double"), warm=step == "enqueue")
    bench.world.faults.enqueues = 1
    bench.api.inject("cudaStreamSynchronize", E.cudaErrorLaunchFailure)
    with pytest.raises(DeviceError, match=r"cudaErrorLaunchFailure.*found after: TensorRT refused a batch") as raised:
        lane.enqueue(batch(bench)) if step == "enqueue" else lane.warm_up(Bucket(8))
    assert raised.value.is_sticky
    with pytest.raises(DeviceError, match="the GPU is lost") as again:
        lane.enqueue(batch(bench))
    assert again.value.is_sticky


def test_a_lost_device_is_asked_nothing_more(make_bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """The second batch in flight fails, and the lane closes, without a call: none might ever return."""
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    tickets = [lane.enqueue(batch(bench, seed=seed)) for seed in range(LANE_DEPTH)]
    bench.api.inject("cudaEventSynchronize", E.cudaErrorIllegalAddress)
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
        lane.sync(tickets[0])
    before = bench.api.calls.copy()
    with pytest.raises(DeviceError, match="the GPU is lost to this process: cudaErrorIllegalAddress") as raised:
        lane.sync(tickets[1])
    assert raised.value.is_sticky
    lane.close()
    lane.close()
    assert bench.api.calls == before
    assert caplog.text.count("the GPU is lost to this process") == 1
    assert lane.figures().device_bytes == {}


def test_a_device_that_turns_out_to_be_lost_at_the_close(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    bench.api.inject("cudaStreamSynchronize", E.cudaErrorIllegalAddress)
    before = bench.api.calls["cudaFree"], bench.api.calls["cudaGraphExecDestroy"]
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress") as raised:
        lane.close()
    assert raised.value.is_sticky
    assert lane.is_dead
    lane.close()
    assert (bench.api.calls["cudaFree"], bench.api.calls["cudaGraphExecDestroy"]) == before


@pytest.mark.parametrize("call", ["cudaFree", "cudaFreeHost", "cudaGraphExecDestroy", "cudaStreamDestroy"])
def test_a_device_that_turns_out_to_be_lost_while_it_is_freed(make_bench: MakeBench, call: str) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    bench.api.inject(call, E.cudaErrorIllegalAddress)
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress") as raised:
        lane.close()
    assert raised.value.is_sticky
    lane.close()


def test_a_close_that_is_refused_frees_the_rest(make_bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    bench = make_bench()
    backend = bench.open("double")
    lane = bench.lane(backend)
    for call in ("cudaStreamSynchronize", "cudaFree"):
        bench.api.inject(call, E.cudaErrorInvalidValue)
    lane.close()
    assert not lane.is_dead
    assert "a lane was not freed completely: cudaErrorInvalidValue" in caplog.text
    assert bench.cuda.live.graphs == bench.cuda.live.streams == bench.cuda.live.pinned_bytes == 0
    assert bench.cuda.live.device_bytes > 0


def test_another_error_while_settling_does_not(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    bench.api.inject("cudaMemcpyAsync", E.cudaErrorInvalidValue)
    bench.api.inject("cudaStreamSynchronize", E.cudaErrorInvalidValue)
    with pytest.raises(DeviceError, match="h2d"):
        lane.enqueue(batch(bench))
    assert not lane.is_dead
    assert_works(bench, lane)


def test_a_model_that_does_not_run(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"), warm=False)
    bench.world.faults.enqueues = 1
    with pytest.raises(ExecutionFailed, match="in bucket 8: enqueue was told to fail"):
        lane.warm_up(Bucket(8))
    contexts = bench.api.library_bytes[0] - DOUBLE.weights_bytes
    assert (contexts, bench.cuda.live.graphs, set(lane.figures().replays)) == (0, 0, set())
    lane.warm_up(Bucket(8))
    with pytest.raises(ExecutionFailed, match="model 'double' was not made ready for bucket 4"):
        lane.enqueue(batch(bench))


def test_a_context_that_cannot_be_made(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"), warm=False)
    bench.world.faults.context = "no memory for persistent state"
    with pytest.raises(ExecutionFailed, match="no memory for persistent state"):
        lane.warm_up(Bucket(8))
    bench.world.faults.context = ""
    for bucket in (Bucket(4), Bucket(8)):
        lane.warm_up(bucket)
    assert_works(bench, lane)


def test_a_stream_that_cannot_be_waited_for_keeps_no_other_from_being_waited_for(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    lane.enqueue(batch(bench))
    before = bench.api.calls["cudaStreamSynchronize"]
    bench.api.inject("cudaStreamSynchronize", E.cudaErrorInvalidValue)
    lane.close()
    assert bench.api.calls["cudaStreamSynchronize"] - before == 3
    assert bench.cuda.live == LiveCounts()


@pytest.mark.parametrize("call", ["cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithPriority"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_lane_that_does_not_fit_leaves_nothing(make_bench: MakeBench, call: str, after: int) -> None:
    bench = make_bench()
    backend = bench.open("double")
    before = bench.cuda.live
    bench.api.inject(call, E.cudaErrorMemoryAllocation, after=after)
    with pytest.raises(DeviceError, match="out of memory"):
        backend.create_lane(0)
    assert bench.cuda.live == before


def test_an_engine_without_scratch(make_bench: MakeBench) -> None:
    bench = make_bench(models={"double": replace(DOUBLE, scratch=(0, 0))})
    lane = bench.lane(bench.open("double"))
    assert_works(bench, lane)


def test_moments_are_the_devices_own(make_bench: MakeBench) -> None:
    """One clock for host and device: the moments on the device lie between the enqueue and the result."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1000
        return now

    bench = make_bench(clock=clock)
    backend = bench.open("double")
    lane = TensorRTLane(bench.cuda, backend._engine, backend.spec, CopyThreads(0), clock=clock)
    bench.lanes.append(lane)
    lane.open(backend._shapes, device=0)
    lane.warm_up(Bucket(4))
    begun = now
    timings = lane.sync(lane.enqueue(batch(bench))).timings
    assert begun < timings.started < timings.copied_in < timings.computed < timings.copied_out <= now
    assert timings.computed - timings.copied_in == 1000
    device = timings.device
    assert device is not None
    assert (device.h2d, device.wait, device.d2h) == (1000, 1000, 1000)
    assert device.enqueue > 0


def test_lanes_behind_a_pool(bench: FakeBench) -> None:
    """The scheduler's own threads: contexts stay on the thread that made them."""
    done: SimpleQueue[tuple[Batch, object]] = SimpleQueue()
    backend = bench.open("double", lanes=LanesCard(count=2))
    pool = LanePool(backend, lambda lane_id, each, outcome: done.put((each, outcome)))
    pool.grow(backend.lane_count)
    pool.call_together(lambda lane: [lane.warm_up(bucket) for bucket in backend.spec.buckets.known()])
    sent = [batch(bench, size=1 + number % 8, seed=number) for number in range(20)]
    for number, each in enumerate(sent):
        pool.dispatch(number % 2, each)
    for _ in sent:
        each, outcome = done.get(timeout=30)
        assert_right("double", each, outcome.outputs)
    pool.close()
    assert bench.cuda.live.graphs == 0

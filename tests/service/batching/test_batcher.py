"""The batcher with real lane threads around a backend that finishes when the test says so."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from service.buckets import Bucket, Unserved, UnservedReason
from service.cards import BatchingCard
from service.errors import (
    ClientGone,
    DeadlineExceeded,
    DeviceError,
    ExecutionFailed,
    NotReady,
    Overloaded,
    ShuttingDown,
)
from service.units import NS_PER_MS
from tests.doubles.batcher_bench import BatcherBench, turn
from tests.doubles.requests import make_spec

WRONG = Unserved(UnservedReason.DIFFERS_FROM_REFERENCE, "agrees by 0.7 alone")


async def test_a_request_is_answered_with_its_own_rows():
    async with BatcherBench(make_spec(), held=False) as bench:
        items = [bench.submit(rows=2, fill=float(value)) for value in range(20)]
        for value, item in enumerate(items):
            (host_y,) = await item.future
            np.testing.assert_array_equal(host_y, np.full((2, 4), 2.0 * value, np.float32))


async def test_requests_of_one_turn_share_a_batch():
    async with BatcherBench(make_spec()) as bench:
        for _ in range(3):
            bench.submit()
        await bench.begun()
        assert [len(batch.requests) for batch in bench.backend.batches] == [3]


async def test_what_queued_while_the_lane_was_busy_runs_together():
    async with BatcherBench(make_spec()) as bench:
        first = bench.submit()
        await bench.begun()
        rest = [bench.submit() for _ in range(8)]
        await turn()
        assert repr(bench.batcher) == "<Batcher m queued=8 in_flight=[1]>"
        bench.backend.let(2)
        await asyncio.gather(first.future, *(item.future for item in rest))
        assert [batch.size for batch in bench.backend.batches] == [1, 8]
        assert [(bucket.padded_size, size) for bucket, size, _ in bench.recorder.batches] == [(1, 1), (8, 8)]


async def test_lanes_work_at_once_and_a_lane_holds_no_more_than_its_depth():
    async with BatcherBench(make_spec(max_batch_size=1), lanes=2, depth=2) as bench:
        items = [bench.submit() for _ in range(6)]
        await bench.begun(4)
        assert bench.backend.max_open_count == 4
        assert bench.batcher.queued_requests == 2
        assert bench.batcher.busy_lanes == 2
        bench.backend.let(6)
        await asyncio.gather(*(item.future for item in items))
        assert bench.backend.max_open_count == 4


async def test_the_request_that_breaks_a_batch_fails_alone():
    """What runs with it, and what comes after it, is answered."""
    async with BatcherBench(make_spec()) as bench:
        bench.backend.fails_on = lambda request: (
            ExecutionFailed("the model broke") if request.request_id == "bad" else None
        )
        good = [bench.submit(fill=1.0), bench.submit(rows=3, fill=2.0)]
        bad = bench.submit(request_id="bad")
        await bench.begun()
        following = bench.submit(fill=4.0)
        bench.backend.let(100)
        with pytest.raises(ExecutionFailed, match="the model broke"):
            await bad.future
        assert [(await item.future)[0][0, 0] for item in (*good, following)] == [2.0, 4.0, 8.0]
        assert [batch.size for batch in bench.backend.batches] == [5, 1, 3, 1, 1]
        assert repr(bench.batcher) == "<Batcher m queued=0 in_flight=[0]>"


async def test_an_unexpected_error_in_a_lane_is_answered_without_its_text(caplog):
    async with BatcherBench(make_spec()) as bench:
        bench.backend.fails_on = lambda _: RuntimeError("/secret/path")
        item = bench.submit()
        bench.backend.let()
        with pytest.raises(ExecutionFailed) as caught:
            await item.future
        assert "secret" not in caught.value.message
        assert "/secret/path" in caplog.text


async def test_a_request_expires_in_the_queue_at_its_deadline():
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        late = bench.submit(timeout_ms=50)
        await turn()
        bench.clock.advance_ms(50)
        with pytest.raises(DeadlineExceeded, match="Request timeout expired"):
            await late.future
        bench.backend.let()
        await running.future
        assert len(bench.backend.batches) == 1


async def test_a_request_that_could_not_start_in_time_is_refused_at_once():
    async with BatcherBench(make_spec(max_batch_size=1)) as bench:
        for _ in range(21):
            bench.submit()
        with pytest.raises(Overloaded, match="ms behind, this request allows 5 ms") as caught:
            bench.submit(timeout_ms=5)
        assert caught.value.retry_after_s == pytest.approx(0.021, rel=0.1)
        assert bench.submit(timeout_ms=5000) is not None


async def test_an_urgent_request_is_judged_by_the_urgent_work_alone():
    async with BatcherBench(make_spec(max_batch_size=1)) as bench:
        for _ in range(21):
            bench.submit(priority=2)
        assert bench.submit(priority=1, timeout_ms=5) is not None


async def test_a_full_queue_refuses():
    spec = make_spec(batching=BatchingCard(max_batch_size=1, max_queued_requests=2))
    async with BatcherBench(spec) as bench:
        bench.submit()
        await bench.begun()
        bench.submit()
        bench.submit()
        with pytest.raises(Overloaded, match="Exceeds maximum queue size"):
            bench.submit()


async def test_a_client_that_leaves_takes_its_request_out_of_the_queue():
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        gone = bench.submit()
        assert bench.batcher.cancel(gone)
        assert not bench.batcher.cancel(gone)
        assert not bench.batcher.cancel(running)
        with pytest.raises(ClientGone):
            await gone.future
        bench.backend.let()
        await running.future
        assert len(bench.backend.batches) == 1


async def test_a_cancelled_task_leaves_its_neighbours_alone():
    async with BatcherBench(make_spec()) as bench:
        kept, dropped = bench.submit(fill=3.0), bench.submit()
        await bench.begun()
        dropped.future.cancel()
        bench.backend.let()
        assert (await kept.future)[0][0, 0] == 6.0


async def test_draining_refuses_new_requests_and_finishes_the_old():
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        waiting = bench.submit()
        draining = asyncio.create_task(bench.batcher.drain(30))
        await turn()
        with pytest.raises(ShuttingDown):
            bench.submit()
        assert not draining.done()
        bench.backend.let(2)
        await asyncio.gather(running.future, waiting.future)
        await draining


async def test_draining_ends_what_is_left_after_its_timeout():
    async with BatcherBench(make_spec()) as bench:
        bench.submit()
        await bench.begun()
        waiting = bench.submit()
        await bench.batcher.drain(0.01)
        with pytest.raises(ShuttingDown):
            await waiting.future


async def test_a_batch_that_breaks_after_the_drain_timeout_fails_whole():
    """Its requests cannot be run apart any more: the lanes are closing, and would never answer."""
    bench = BatcherBench(make_spec())
    async with bench:
        bench.backend.fails_on = lambda request: ExecutionFailed("the model broke")
        items = [bench.submit(), bench.submit()]
        await bench.begun()
        await bench.batcher.drain(0.01)
        closing = asyncio.create_task(asyncio.to_thread(bench.batcher.close))
        bench.backend.let(10)
        await closing
        for item in items:
            with pytest.raises(ExecutionFailed):
                await asyncio.wait_for(item.future, 5)
        assert len(bench.backend.batches) == 1


async def test_answers_do_not_wait_for_a_step_that_fails(monkeypatch):
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        bench.submit()
        await turn()
        broken = RuntimeError("a bug in the policy")
        raised: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))

        def fail(*_: object) -> None:
            raise broken

        with monkeypatch.context() as patched:
            patched.setattr("service.batching.batcher.next_action", fail)
            bench.backend.let()
            assert (await asyncio.wait_for(running.future, 5))[0].shape == (1, 4)
        assert raised == [broken]


async def test_nothing_is_taken_before_start():
    bench = BatcherBench(make_spec())
    with pytest.raises(NotReady, match="still loading"):
        bench.submit()
    bench.batcher.close()


async def test_every_lane_is_made_and_used_and_closed_on_one_thread_and_the_backend_last():
    """HeldLane asserts its owner in every call."""
    async with BatcherBench(make_spec(max_batch_size=1), lanes=3, held=False) as bench:
        await asyncio.gather(*(bench.submit().future for _ in range(30)))
    assert bench.backend.closed_lanes == 3
    assert bench.backend.is_closed


async def test_stamps_are_in_order():
    async with BatcherBench(make_spec(), held=False) as bench:
        item = bench.submit()
        bench.clock.advance_ms(1)
        await item.future
        stamps = item.request.stamps
        assert 0 < stamps.dispatched <= stamps.started <= stamps.copied_out <= stamps.completed


async def test_a_queue_delay_gathers_requests_of_later_turns():
    spec = make_spec(batching=BatchingCard(max_batch_size=2, max_queue_delay_ns=20 * NS_PER_MS))
    async with BatcherBench(spec, held=False) as bench:
        first = bench.submit()
        await turn()
        assert bench.backend.batches == []
        second = bench.submit()
        await asyncio.gather(first.future, second.future)
        assert [batch.size for batch in bench.backend.batches] == [2]


async def test_a_queue_delay_ends():
    spec = make_spec(batching=BatchingCard(max_batch_size=2, max_queue_delay_ns=20 * NS_PER_MS))
    async with BatcherBench(spec, held=False) as bench:
        first = bench.submit()
        await turn()
        bench.clock.advance_ms(20)
        await first.future
        assert [batch.size for batch in bench.backend.batches] == [1]


async def test_what_a_missing_bucket_held_runs_in_the_next_that_covers_it():
    spec = make_spec(max_batch_size=4, dims={"width": (4, 8)})
    unserved = dict.fromkeys((Bucket(1, (4,)), Bucket(4, (4,)), Bucket(4, (8,))), WRONG)
    async with BatcherBench(spec, held=False, unserved=unserved) as bench:
        for rows, width in ((1, 3), (2, 4), (1, 8)):
            await bench.submit(rows, dims=(width,)).future
        ran = [batch.bucket for batch in bench.backend.batches]
        assert ran == [Bucket(2, (4,)), Bucket(2, (4,)), Bucket(1, (8,))]


async def test_a_shape_that_no_bucket_serves_any_more_is_refused_with_the_reason():
    async with BatcherBench(make_spec(max_batch_size=4), held=False, unserved={Bucket(4): WRONG}) as bench:
        with pytest.raises(NotReady, match=r"does not serve bucket 4, nor one that.*agrees by 0\.7 alone"):
            bench.submit(rows=3)
        await bench.submit(rows=2).future
        items = [bench.submit() for _ in range(4)]
        await asyncio.gather(*(item.future for item in items))
        assert {batch.bucket.padded_size for batch in bench.backend.batches} == {2}


async def test_a_lost_device_ends_what_waits_and_what_runs_and_is_told():
    async with BatcherBench(make_spec(max_batch_size=2), lanes=2) as bench:
        bench.backend.fails_on = lambda request: (
            DeviceError("cudaErrorIllegalAddress: an illegal memory access", is_sticky=True)
            if request.request_id == "poison"
            else None
        )
        poison = [bench.submit(request_id="poison"), bench.submit()]
        await bench.begun()
        beside = bench.submit(rows=2)
        await bench.begun()
        waiting = [bench.submit() for _ in range(3)]
        await turn()
        bench.backend.let()
        for item in (*poison, beside):
            with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
                await asyncio.wait_for(item.future, 10)
        for item in waiting:
            with pytest.raises(NotReady, match="the GPU is lost to this server, which ends now: cudaError"):
                await item.future
        with pytest.raises(NotReady, match="the GPU is lost"):
            bench.submit()
        assert len(bench.lost) == 1
        bench.backend.fails_on = lambda request: None
        bench.backend.let()
        await turn()
        assert len(bench.backend.batches) == 2


async def test_an_error_that_is_not_sticky_fails_its_request_alone():
    async with BatcherBench(make_spec(), held=False) as bench:
        bench.backend.fails_on = lambda request: (
            DeviceError("cudaErrorMemoryAllocation") if request.request_id == "bad" else None
        )
        good, bad = bench.submit(), bench.submit(request_id="bad")
        with pytest.raises(DeviceError):
            await bad.future
        await good.future
        assert bench.lost == []

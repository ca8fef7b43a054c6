"""A pause holds dispatches back for a bounded time, and loses nothing."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import DeadlineExceeded, DeviceError, NotReady, Overloaded, ShuttingDown
from service.units import NS_PER_MS
from tests.doubles.batcher_bench import BatcherBench, turn
from tests.doubles.requests import make_spec


async def test_what_comes_in_a_pause_waits_and_is_answered_after_it() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        await bench.batcher.pause(bench.clock.now_ns + 50 * NS_PER_MS)
        items = [bench.submit() for _ in range(3)]
        await turn()
        assert bench.backend.batches == []
        bench.batcher.resume()
        await asyncio.gather(*(item.future for item in items))
        assert [batch.size for batch in bench.backend.batches] == [3]


async def test_a_pause_ends_by_itself() -> None:
    """By the timer: nobody resumes."""
    async with BatcherBench(make_spec(), held=False) as bench:
        await bench.batcher.pause(bench.clock.now_ns + 20 * NS_PER_MS)
        item = bench.submit()
        await turn()
        assert not item.future.done()
        bench.clock.advance_ms(20)
        await asyncio.wait_for(item.future, 10)


async def test_it_begins_once_the_lanes_are_empty() -> None:
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        pausing = asyncio.ensure_future(bench.batcher.pause(bench.clock.now_ns + 1000 * NS_PER_MS))
        waiting = bench.submit()
        await turn()
        assert not pausing.done()
        bench.backend.let()
        assert await pausing == bench.clock.now_ns + 1000 * NS_PER_MS
        assert running.future.done()
        assert bench.batcher.queued_requests == 1
        bench.batcher.resume()
        bench.backend.let()
        await waiting.future


async def test_what_waits_already_ends_it_in_time_for_its_deadline() -> None:
    async with BatcherBench(make_spec()) as bench:
        first = bench.submit()
        await bench.begun()
        waiting = bench.submit(timeout_ms=100)
        pausing = asyncio.ensure_future(bench.batcher.pause(bench.clock.now_ns + 2000 * NS_PER_MS))
        bench.backend.let(2)
        until_ns = await pausing
        assert bench.clock.now_ns < until_ns < bench.clock.now_ns + 100 * NS_PER_MS
        bench.clock.now_ns = until_ns
        await asyncio.wait_for(asyncio.gather(first.future, waiting.future), 10)


async def test_where_what_waits_leaves_no_time_it_does_not_begin() -> None:
    """Nor wait for empty lanes, which requests that go on coming may never leave it."""
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        waiting = bench.submit(timeout_ms=1.1)
        pausing = asyncio.ensure_future(bench.batcher.pause(bench.clock.now_ns + 2000 * NS_PER_MS))
        assert await asyncio.wait_for(pausing, 10) == 0
        assert not running.future.done()
        bench.clock.advance_ms(2)
        bench.backend.let()
        await running.future
        with pytest.raises(DeadlineExceeded):
            await waiting.future


async def test_one_that_ends_before_the_lanes_are_empty_is_not_waited_for() -> None:
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        pausing = asyncio.ensure_future(bench.batcher.pause(bench.clock.now_ns + 20 * NS_PER_MS))
        await turn()
        assert not pausing.done()
        bench.clock.advance_ms(20)
        assert await asyncio.wait_for(pausing, 10) == 0
        assert not running.future.done()
        bench.backend.let()
        await running.future


async def test_of_two_at_once_neither_waits_for_ever() -> None:
    async with BatcherBench(make_spec()) as bench:
        running = bench.submit()
        await bench.begun()
        pausing = [
            asyncio.ensure_future(bench.batcher.pause(bench.clock.now_ns + after_ms * NS_PER_MS))
            for after_ms in (1000, 2000)
        ]
        await turn()
        bench.backend.let()
        moments_ns = await asyncio.wait_for(asyncio.gather(*pausing), 10)
        assert moments_ns == [bench.clock.now_ns + 2000 * NS_PER_MS] * 2
        await running.future


async def test_admission_knows_of_it() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        await bench.batcher.pause(bench.clock.now_ns + 500 * NS_PER_MS)
        with pytest.raises(Overloaded, match="500 ms behind") as refused:
            bench.submit(timeout_ms=100)
        assert refused.value.retry_after_s == pytest.approx(0.5)
        patient = bench.submit(timeout_ms=1000)
        bench.batcher.resume()
        await patient.future


async def test_unloading_ends_it_and_answers_what_waits() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        await bench.batcher.pause(bench.clock.now_ns + 5000 * NS_PER_MS)
        item = bench.submit()
        await bench.batcher.drain(10)
        assert item.future.done()
        with pytest.raises(ShuttingDown):
            await bench.batcher.pause(bench.clock.now_ns + NS_PER_MS)


async def test_a_lost_device_ends_the_wait_for_it() -> None:
    async with BatcherBench(make_spec()) as bench:
        item = bench.submit()
        await bench.begun()
        pausing = asyncio.ensure_future(bench.batcher.pause(bench.clock.now_ns + 1000 * NS_PER_MS))
        await turn()
        bench.batcher.abandon(DeviceError("gone", is_sticky=True))
        await asyncio.wait_for(pausing, 10)
        with pytest.raises(DeviceError):
            await item.future
        with pytest.raises(NotReady):
            await bench.batcher.pause(bench.clock.now_ns + NS_PER_MS)
        bench.backend.let()


async def test_resuming_without_a_pause_changes_nothing() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        bench.batcher.resume()
        await bench.submit().future

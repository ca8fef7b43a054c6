"""A backend outlives whoever uses it beside its lanes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from service.batching.guests import Guests
from service.errors import ShuttingDown
from tests.doubles.batcher_bench import BatcherBench
from tests.doubles.requests import make_spec

WAIT_S = 10


def test_whoever_stays_is_told_to_leave_and_waited_for() -> None:
    guests, told, gone = Guests(), threading.Event(), threading.Event()

    def close() -> None:
        guests.wait_until_gone()
        gone.set()

    with guests.staying(told.set):
        closing = threading.Thread(target=close)
        closing.start()
        assert told.wait(WAIT_S)
        assert not gone.is_set()
    closing.join(WAIT_S)
    assert gone.is_set()


def test_nobody_comes_in_once_all_were_told_to_leave() -> None:
    guests = Guests()
    guests.ask_to_leave()
    with pytest.raises(ShuttingDown, match="try again when it serves"), guests.staying(lambda: None):
        pass
    guests.wait_until_gone()


def test_each_is_told_once_and_those_that_left_are_not() -> None:
    guests, told = Guests(), []
    with guests.staying(lambda: told.append("left")):
        pass
    with guests.staying(lambda: told.append("here")):
        guests.ask_to_leave()
        guests.ask_to_leave()
    assert told == ["here"]


async def test_the_backend_of_a_batcher_is_closed_after_its_guests() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        with bench.batcher.pool.guests.staying(lambda: loop.call_soon_threadsafe(told.set)):
            await bench.batcher.drain(1)
            await asyncio.wait_for(told.wait(), WAIT_S)
            closing = asyncio.ensure_future(asyncio.to_thread(bench.batcher.close))
            assert not bench.backend.is_closed
        await closing
        assert bench.backend.is_closed

from __future__ import annotations

import asyncio
import time

import pytest

from loadtest.clock import SystemClock

MS = 1_000_000


async def test_waits_until_the_moment_and_never_returns_before() -> None:
    async with SystemClock() as clock:
        for _ in range(3):
            at_ns = clock.now_ns() + 2 * MS
            await clock.until(at_ns)
            assert time.monotonic_ns() >= at_ns


async def test_lets_others_run_when_the_moment_is_past() -> None:
    ran = []
    async with SystemClock() as clock:
        asyncio.get_running_loop().call_soon(ran.append, True)
        await clock.until(0)
        assert ran


async def test_a_cancelled_wait_leaves_the_clock_usable() -> None:
    async with SystemClock() as clock:
        wait = asyncio.ensure_future(clock.until(clock.now_ns() + 3600 * 1000 * MS))
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        at_ns = clock.now_ns() + MS
        await clock.until(at_ns)
        assert clock.now_ns() >= at_ns

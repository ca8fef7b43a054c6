"""A clock that moves when a test says so."""

from __future__ import annotations

import asyncio


class ManualClock:
    """Starts at 0; `advance` moves it and releases the waiter whose time has come."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._at_ns = 0
        self._waiter: asyncio.Future[None] | None = None
        self.is_awaited = asyncio.Event()

    def now_ns(self) -> int:
        return self._now_ns

    async def until(self, at_ns: int) -> None:
        if at_ns <= self._now_ns:
            await asyncio.sleep(0)
            return
        self._at_ns = at_ns
        self._waiter = asyncio.get_running_loop().create_future()
        self.is_awaited.set()
        await self._waiter

    def advance(self, by_ns: int) -> None:
        self._now_ns += by_ns
        if self._waiter is not None and not self._waiter.done() and self._at_ns <= self._now_ns:
            self.is_awaited.clear()
            self._waiter.set_result(None)

"""A bounded time in which a batcher gives nothing to its lanes, so that something else can be measured on them."""

from __future__ import annotations

import asyncio


class Pause:
    """The latest pause of one batcher; belongs to its event loop.

    Attributes:
        until_ns: when it ends, by the batcher's clock; 0 if nothing is paused.
    """

    def __init__(self) -> None:
        self.until_ns = 0
        self._lanes_are_empty: asyncio.Event | None = None

    def remaining_ns(self, now_ns: int) -> int:
        """How long it lasts from `now_ns` on; 0 once it is over."""
        return max(0, self.until_ns - now_ns)

    async def begin(self, until_ns: int, *, is_running: bool) -> None:
        """Begins at once, and returns when no lane runs anything any more: at once unless `is_running`."""
        self.until_ns = until_ns
        self._lanes_are_empty = asyncio.Event()
        if is_running:
            await self._lanes_are_empty.wait()

    def lanes_are_empty(self) -> None:
        """No lane runs anything."""
        if self._lanes_are_empty is not None:
            self._lanes_are_empty.set()

    def end(self) -> None:
        """Ends it; idempotent. Whoever still waits for empty lanes waits no more."""
        self.until_ns = 0
        self.lanes_are_empty()

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

    async def begin(self, until_ns: int, *, now_ns: int, is_running: bool) -> None:
        """Begins at once, and returns when no lane runs anything any more, or when the pause has ended.

        At once, so, unless a lane `is_running` something, or where `until_ns` has passed by `now_ns`. Whoever waits for
        a former pause goes on to wait for this one.
        """
        self.until_ns = until_ns if until_ns > now_ns else 0
        if not self.until_ns or not is_running:
            self.lanes_are_empty()
            return
        if self._lanes_are_empty is None or self._lanes_are_empty.is_set():
            self._lanes_are_empty = asyncio.Event()
        await self._lanes_are_empty.wait()

    def lanes_are_empty(self) -> None:
        """No lane runs anything."""
        if self._lanes_are_empty is not None:
            self._lanes_are_empty.set()

    def end(self) -> None:
        """Ends it; idempotent. Whoever still waits for empty lanes waits no more."""
        self.until_ns = 0
        self.lanes_are_empty()

"""When a batcher's policy is asked again: in this turn of the event loop, or at a moment of its clock.

Promises: however many reasons there are, one call in a turn and one timer at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from service.batching.queue import NO_DEADLINE_NS
from service.requests import Clock
from service.units import NS_PER_MS


class Alarm:
    """Calls one function when it is due. Belongs to the event loop of `start`.

    Args:
        ring: what is called; it looks itself at what there is to do.
        clock: monotonic nanoseconds, comparable with the event loop's own time.
    """

    def __init__(self, ring: Callable[[], None], clock: Clock) -> None:
        self._ring = ring
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_due_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._at_ns = NO_DEADLINE_NS

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Rings on this loop from now on; before, it is deaf."""
        self._loop = loop

    def soon(self) -> None:
        """Rings after everything that this turn of the loop brings, so that requests of one turn can share a batch."""
        if not self._is_due_soon and self._loop is not None:
            self._is_due_soon = True
            self._loop.call_soon(self._on_soon)

    def by(self, at_ns: int) -> None:
        """Rings at `at_ns` at the latest: not for itself where it rings earlier anyway."""
        if at_ns >= self._at_ns or self._loop is None:
            return
        self.stop()
        self._at_ns = at_ns
        # uvloop's timers count whole milliseconds; one that fires early would be armed again and again until it is due.
        delay_ms = max(0, math.ceil((at_ns - self._clock()) / NS_PER_MS))
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def stop(self) -> None:
        """Takes the timer back; idempotent. What rings in this turn of the loop still does."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._at_ns = NO_DEADLINE_NS

    def _on_soon(self) -> None:
        self._is_due_soon = False
        self._ring()

    def _on_timer(self) -> None:
        self._timer = None
        self._at_ns = NO_DEADLINE_NS
        self._ring()

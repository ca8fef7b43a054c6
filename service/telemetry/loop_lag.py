"""Measures how late the event loop runs: whatever blocks it delays every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from service.units import NS_PER_S

INTERVAL_S = 0.1


class LoopLagSampler:
    """Ticks on the event loop and records how late each tick came. Used on the event loop's thread alone.

    Args:
        record: takes the lateness of one tick, in nanoseconds, never negative.
        interval_s: seconds between ticks.
        clock_ns: a monotonic clock, in nanoseconds.
    """

    def __init__(
        self,
        record: Callable[[int], None],
        *,
        interval_s: float = INTERVAL_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._record = record
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to tick on the running event loop; does nothing if it ticks already."""
        if self._timer is None:
            self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Ends the ticks; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due_ns = self._clock_ns() + int(self._interval_s * NS_PER_S)
        self._timer = loop.call_later(self._interval_s, self._tick, loop, due_ns)

    def _tick(self, loop: asyncio.AbstractEventLoop, due_ns: int) -> None:
        # A loop whose timers are whole milliseconds may be early by a part of one.
        lag_ns = max(0, self._clock_ns() - due_ns)
        self._schedule(loop)
        self._record(lag_ns)

"""Finds clients that stall or leave, at no cost to those that do neither.

A timer or a task per request would cost more than the rest of its bookkeeping. Instead every request signs in with
two attribute writes, and a sweep a few times a second looks for the old ones: a body that takes too long is cut
off, and only a request that has waited a while gets a task that listens for its client's departure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import Receive

from service.requests import Clock
from service.units import NS_PER_MS, NS_PER_S

SWEEP_INTERVAL_S = 0.05
LISTEN_AFTER_NS = 50 * NS_PER_MS


class Watched:
    """One request that the watchdog knows.

    Attributes:
        is_reading: whether its body is awaited.
        is_too_slow: set by the watchdog, together with the cancellation of `task`, when that took too long.
        on_gone: what to give up when the client leaves, or None while there is nothing.
        is_gone: whether it left.
    """

    __slots__ = ("is_gone", "is_reading", "is_too_slow", "listener", "on_gone", "receive", "since_ns", "task")

    def __init__(self, receive: Receive, task: asyncio.Task[object], since_ns: int) -> None:
        self.receive = receive
        self.task = task
        self.since_ns = since_ns
        self.is_reading = False
        self.is_too_slow = False
        self.is_gone = False
        self.on_gone: Callable[[], object] | None = None
        self.listener: asyncio.Task[None] | None = None


class Watchdog:
    """Sweeps over the requests in progress. Belongs to the event loop.

    Args:
        body_timeout_s: seconds within which a body must arrive.
        clock: monotonic nanoseconds.
    """

    def __init__(self, *, body_timeout_s: float, clock: Clock = time.monotonic_ns) -> None:
        self._body_timeout_ns = int(body_timeout_s * NS_PER_S)
        self._clock = clock
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._watched)

    def sign_in(self, receive: Receive, since_ns: int) -> Watched:
        """Watches the current task's request until `sign_out`; called before its body is read."""
        task = asyncio.current_task()
        assert task is not None, "requests are served by tasks"
        watched = Watched(receive, task, since_ns)
        self._watched.add(watched)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep)
        return watched

    def sign_out(self, watched: Watched) -> None:
        """Forgets a request that has been answered."""
        self._watched.discard(watched)
        if watched.listener is not None:
            watched.listener.cancel()

    def sweep(self, now_ns: int) -> None:
        """Cuts off slow bodies and begins to listen for the departure of clients that have waited a while."""
        for watched in self._watched:
            age_ns = now_ns - watched.since_ns
            if watched.is_reading:
                if age_ns > self._body_timeout_ns and not watched.is_too_slow:
                    watched.is_too_slow = True
                    watched.task.cancel()
            elif watched.listener is None and watched.on_gone is not None and age_ns > LISTEN_AFTER_NS:
                watched.listener = asyncio.get_running_loop().create_task(_listen(watched))

    def _sweep(self) -> None:
        self._timer = None
        self.sweep(self._clock())
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep)


async def _listen(watched: Watched) -> None:
    """After its body an ASGI client can only say that it has gone."""
    message = await watched.receive()
    if message["type"] == "http.disconnect":
        watched.is_gone = True
        if watched.on_gone is not None:
            watched.on_gone()

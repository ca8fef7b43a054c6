"""How a run of experiments is told to end: on the event loop, from any thread, and in the midst of a wait."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class RunStopped(Exception):
    """Ends a run between two rounds; the message says why."""


class Stop:
    """One run's. Made on the event loop.

    Attributes:
        reason: why it must end; empty as long as it may go on.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._is_asked = threading.Event()

    def ask(self, reason: str) -> None:
        """Lets the run end after the round in hand; on the event loop. The first reason counts."""
        self.reason = self.reason or reason
        self._asked.set()
        self._is_asked.set()

    def ask_from_thread(self, reason: str) -> None:
        """Likewise, from any thread."""
        self._is_asked.set()
        with suppress(RuntimeError):  # the loop is closed, and the run with it
            self._loop.call_soon_threadsafe(self.ask, reason)

    def check(self) -> None:
        """On the event loop.

        Raises:
            RunStopped: the run must end.
        """
        if self.reason:
            raise RunStopped(self.reason)

    async def sleep(self, seconds: float) -> None:
        """Waits so long, on the event loop.

        Raises:
            RunStopped: the run must end; at once.
        """
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._asked.wait(), seconds)
        self.check()

    def rest(self, seconds: float) -> None:
        """Waits so long, on the experiment's thread; less if the run must end."""
        self._is_asked.wait(seconds)

"""Time for the load loops: nanoseconds now, and waiting until an absolute time.

Event loops round timers up to whole milliseconds, which an open loop would report as the server's latency;
`SystemClock` waits on a kernel timer instead. Tests inject a clock that they move by hand.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from types import TracebackType
from typing import Protocol

from loadtest.arrivals import NS_PER_S

_CLOCK_MONOTONIC = 1
_TIMER_ABSOLUTE = 1


class Clock(Protocol):
    """Time as the loops see it."""

    def now_ns(self) -> int:
        """Nanoseconds on a clock that never goes back."""
        ...

    async def until(self, at_ns: int) -> None:
        """Returns at `at_ns` or just after; lets the event loop run at least once, however late it is.

        One waiter at a time. Cancellation leaves the clock usable.
        """
        ...


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class SystemClock:
    """The monotonic clock of the system. Used on the event loop's thread, inside its `async with`."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> SystemClock:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_expired)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def now_ns(self) -> int:
        """Nanoseconds of the system's monotonic clock."""
        return time.monotonic_ns()

    async def until(self, at_ns: int) -> None:
        """Returns within some 0.1 ms after `at_ns`, or after one turn of the event loop if that is past."""
        if at_ns <= self.now_ns():
            await asyncio.sleep(0)
            return
        seconds, nanoseconds = divmod(at_ns, NS_PER_S)
        spec = _TimerSpec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        self._waiter = asyncio.get_running_loop().create_future()
        if self._libc.timerfd_settime(self._descriptor, _TIMER_ABSOLUTE, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
        await self._waiter

    def _on_expired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return  # re-armed for a later waiter between the expiry and this call
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

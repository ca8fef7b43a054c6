"""Watches the machine and the interpreter from a thread of its own, at a bounded cost: twenty short looks a second.

The wait for the interpreter's lock is measured as a thread meets it that wants to run: it sleeps, and what it comes
late beyond the timer's slack and beyond what the scheduler says it kept it from a processor, it waited for the lock.
Where the scheduler does not tell, nothing is measured: a crowded machine must not be taken for a crowded interpreter.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from service.machine import ROOT
from service.requests import Clock
from service.telemetry.host_counters import HostCounters, read_host_counters, run_delay_ns
from service.units import NS_PER_MS, NS_PER_S, NS_PER_US

INTERVAL_S = 0.05
LOOKS_PER_READ = 20
TIMER_SLACK_NS = 200 * NS_PER_US
"""Linux wakes a thread up to 50 microseconds late by default, and waking and looking at the clock take some: 120 to 160
were seen on a thread that nobody kept from anything."""

MAX_WAIT_NS = 10 * NS_PER_MS
"""Counted of one look at most: a virtual machine that stands still for a moment is not the interpreter."""

STOP_TIMEOUT_S = 2.0


class HostSampler:
    """Keeps the latest `HostCounters`.

    Args:
        root: the folder that `proc` and `sys` lie in.
        clock: monotonic nanoseconds.
    """

    def __init__(self, *, root: Path = ROOT, clock: Clock = time.monotonic_ns) -> None:
        self._root = root
        self._clock = clock
        self._counters: HostCounters | None = None
        self._waits = 0
        self._wait_ns = 0
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def counters(self) -> HostCounters | None:
        """The latest, at most a second old; None before the first. On any thread."""
        return self._counters

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; idempotent."""
        self._is_stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None

    def _run(self) -> None:
        try:
            schedstat = os.open(self._root / "proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            schedstat = None
        try:
            while not self._is_stopping.is_set():
                self._read(is_measured=schedstat is not None)
                for _ in range(LOOKS_PER_READ):
                    if self._look(schedstat):
                        return
        finally:
            if schedstat is not None:
                os.close(schedstat)

    def _read(self, *, is_measured: bool) -> None:
        counters = read_host_counters(self._clock(), self._root)
        if is_measured:
            counters = replace(counters, interpreter_waits=self._waits, interpreter_wait_ns=self._wait_ns)
        self._counters = counters

    def _look(self, schedstat: int | None) -> bool:
        """One sleep, and what came after it; whether the sampler is to end."""
        delayed_ns = _delay_ns(schedstat)
        began_ns = self._clock()
        if self._is_stopping.wait(INTERVAL_S):
            return True
        late_ns = self._clock() - began_ns - int(INTERVAL_S * NS_PER_S)
        self._waits += 1
        wait_ns = late_ns - (_delay_ns(schedstat) - delayed_ns) - TIMER_SLACK_NS
        self._wait_ns += min(max(0, wait_ns), MAX_WAIT_NS)
        return False


def _delay_ns(schedstat: int | None) -> int:
    return 0 if schedstat is None else run_delay_ns(os.pread(schedstat, 96, 0).decode()) or 0

"""The process that tests run in, which what is made to be a process of its own changes."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def this_process() -> Iterator[None]:
    """Puts back what a server changes in the process that it runs in."""
    root = logging.getLogger()
    handlers, level, interval_s = root.handlers[:], root.level, sys.getswitchinterval()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    on_signal = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in on_signal.items():
        signal.signal(number, handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.setswitchinterval(interval_s)
    gc.unfreeze()

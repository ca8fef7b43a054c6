"""One module in a child process: its lines as they come, and its end, wanted or not.

The child has a session of its own, so that a terminal's Ctrl-C reaches its parent alone, and `lifeline` binds it to
its parent's life. Whatever way `run_child` is left, the child and all that it started are gone.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engines import lifeline

LOOK_S = 0.1
"""How often the child's life and the wish to end it are looked at, beside its lines, which are read at once."""

CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 20
MAX_LAST_WORDS = 20

OnLine = Callable[[str], bool]
"""Takes a line of standard output, on the caller's thread; False says that it is none of the protocol's."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a child gets to end after each signal; after the last it is killed.

    Attributes:
        interrupt_s: after SIGINT; longer than the worker itself waits for a builder that can be stopped.
        terminate_s: after SIGTERM.
    """

    interrupt_s: float = 7.0
    terminate_s: float = 2.0

    def signal_after(self, waited_s: float) -> signal.Signals:
        """The strongest signal that is due once a child has been asked to end for `waited_s`."""
        if waited_s < self.interrupt_s:
            return signal.SIGINT
        return signal.SIGTERM if waited_s < self.interrupt_s + self.terminate_s else signal.SIGKILL


DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended.

    Attributes:
        pid: the process that it was.
        status: its exit status, negative for the signal that ended it.
        was_asked: whether it had been asked to end.
        last_words: the last lines of its standard error, and those of standard output that nobody understood.
    """

    pid: int
    status: int
    was_asked: bool
    last_words: tuple[str, ...]


def run_child(
    module: str,
    request: str,
    on_line: OnLine,
    *,
    is_cut_off: threading.Event,
    on_asked: Callable[[], None],
    patience: Patience = DEFAULT_PATIENCE,
) -> Ending:
    """Runs `python -m module` with `request` on its standard input, until it ends; blocking.

    Once `is_cut_off` is set, the child gets SIGINT, then SIGTERM, then SIGKILL, as `patience` says.

    Args:
        module: a module's dotted name.
        request: all that the child reads.
        on_line: called for each line of its standard output.
        is_cut_off: set by any thread when the child is to end.
        on_asked: called once when the child is first asked to end.
        patience: how long each signal is waited for.

    Raises:
        OSError: the process cannot be started.
    """
    last_words: deque[str] = deque(maxlen=MAX_LAST_WORDS)

    def take_output(line: str) -> None:
        if not on_line(line):
            last_words.append(line)

    with _started(module) as process, selectors.DefaultSelector() as selector:
        for stream, take in ((process.stdout, take_output), (process.stderr, last_words.append)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, _Lines(stream, take))
        _hand_over(process, request)
        asking = _Asking(process, patience, on_asked)
        while not _has_ended(process):
            _read(selector, LOOK_S)
            if is_cut_off.is_set():
                asking.ask()
        _signal(process, signal.SIGKILL)  # or what it started could talk on without end
        while _read(selector, 0):
            pass
    return Ending(process.pid, process.returncode, asking.sent is not None, tuple(last_words))


@contextmanager
def _started(module: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(Path(lifeline.__file__)), str(os.getpid()), module]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended. It is not reaped here: until then no other process can get its number."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To the child's whole group: what it started goes with it, also when the child itself has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _hand_over(process: subprocess.Popen[bytes], request: str) -> None:
    """A child that has ended already breaks the pipe; its status says why."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(request.encode())
    with suppress(BrokenPipeError):
        process.stdin.close()


@dataclass
class _Asking:
    """Asks a child to end, each time as strongly as is due."""

    process: subprocess.Popen[bytes]
    patience: Patience
    on_asked: Callable[[], None]
    sent: signal.Signals | None = None
    since_s: float = 0.0

    def ask(self) -> None:
        """Sends the signal that is due, once."""
        if self.sent is None:
            self.since_s = time.monotonic()
            self.on_asked()
        due = self.patience.signal_after(time.monotonic() - self.since_s)
        if due is not self.sent:
            self.sent = due
            _signal(self.process, due)


@dataclass
class _Lines:
    """Cuts what a stream gives into lines."""

    stream: IO[bytes]
    take: Callable[[str], object]
    begun: bytes = b""

    def read(self) -> bool:
        """Takes what is there, without waiting if there is something; False at the stream's end."""
        data = os.read(self.stream.fileno(), CHUNK_BYTES)
        *lines, self.begun = (self.begun + data).split(b"\n")
        if not data or len(self.begun) > MAX_LINE_BYTES:
            lines.append(self.begun)
            self.begun = b""
        for line in lines:
            if text := line.decode(errors="replace").rstrip():
                self.take(text)
        return bool(data)


def _read(selector: selectors.BaseSelector, timeout_s: float) -> bool:
    """Takes what the child says, after waiting `timeout_s` at most; False if it said nothing."""
    ready = selector.select(timeout_s)
    for key, _ in ready:
        if not key.data.read():
            selector.unregister(key.fileobj)
    return bool(ready)

"""The child that builds: `python -m engines.worker` with a BuildRequest as JSON on stdin.

Events come as JSON lines on stdout, and nothing else: what TensorRT's libraries print there goes to stderr. Exit status
0 once the plan has its name, else 1; the last event, Done or Failed, says which. SIGINT or SIGTERM cancels: where
TensorRT can be stopped, within `CANCEL_GRACE_S` seconds, else at once; a plan without its name is gone either way.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO, TypeAlias

from engines.build import AccuracyCheck, build_plan
from engines.events import Done, Event, Failed, OnEvent, to_line
from engines.plan_files import discard_own
from engines.request import BuildRequest
from engines.serialise import CANCELLED, BuildCancelled
from engines.verify import accuracy_check
from service.errors import ServiceError
from service.machine import default_threads
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import Flavour, find_flavour

CANCEL_GRACE_S = 5.0
"""How long a build that TensorRT can stop may take to stop; its steps are as long as timing one layer."""

HARD_GRACE_S = 0.2
"""The same for one that cannot be stopped: enough to give a finished plan its name, which takes milliseconds."""

Machinery: TypeAlias = tuple[Flavour, Cuda]


def open_machinery() -> Machinery:
    """The installed TensorRT and the process's CUDA.

    Raises:
        ModelLoadFailed: TensorRT, the driver or a GPU is missing.
    """
    return find_flavour(), Cuda.load()


@dataclass(slots=True)
class Build:
    """One build in a thread of its own, so that the main thread is free for signals.

    Attributes:
        request: what to build.
        emit: takes events.
        open_machinery: gives TensorRT and CUDA.
        is_cancelled: set to make the build end early.
        can_stop: whether TensorRT can be stopped from inside.
        exit_status: 0 once the plan has its name, else 1.
        finished: set once the last event is out.
    """

    request: BuildRequest
    emit: OnEvent
    open_machinery: Callable[[], Machinery]
    is_cancelled: bool = False
    can_stop: bool = False
    exit_status: int = 1
    finished: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Builds; every way to end has its event."""
        try:
            self.emit(self._outcome())
        finally:
            self.finished.set()

    def _outcome(self) -> Event:
        try:
            flavour, cuda = self.open_machinery()
            self.can_stop = hasattr(flavour.module, "IProgressMonitor")
            report = build_plan(
                self.request,
                flavour=flavour,
                cuda=cuda,
                on_event=self.emit,
                check=self._check(flavour, cuda),
                is_cancelled=lambda: self.is_cancelled,
            )
        except BuildCancelled as error:
            return Failed(error.message, is_cancelled=True)
        except ServiceError as error:
            return Failed(error.message)
        except Exception as error:
            return Failed(f"the build failed in an unforeseen way: {error!r}; please report it")
        self.exit_status = 0
        return Done(report)

    def _check(self, flavour: Flavour, cuda: Cuda) -> AccuracyCheck:
        threads = default_threads()
        return accuracy_check(self.request, flavour=flavour, cuda=cuda, cpu_threads=threads, on_event=self.emit)


class Emitter:
    """Writes events as lines; thread-safe, and silent once nobody reads any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Writes one event."""
        with self._lock:
            try:
                self._stream.write(f"{to_line(event)}\n")
                self._stream.flush()
            except (OSError, ValueError):
                return  # the parent has gone; what it started ends by the parent's death, not by this


def main(open_machinery: Callable[[], Machinery] = open_machinery) -> int:
    """Reads the request, builds, and gives the exit status."""
    emit = Emitter(_events_stream())
    try:
        request = BuildRequest.from_json(sys.stdin.read())
    except ValueError as error:
        emit(Failed(str(error)))
        return 1
    build = Build(request, emit, open_machinery)
    alarm = Alarm(build)
    alarm.set()
    threading.Thread(target=alarm.watch, name="build", daemon=True).start()
    alarm.sleep()
    if not build.finished.wait(CANCEL_GRACE_S if build.can_stop else HARD_GRACE_S):
        discard_own(request.plan_path)
        emit(Failed(CANCELLED, is_cancelled=True))
        _end_now()
    return build.exit_status


class Alarm:
    """Wakes the main thread by a signal or by the end of the build.

    Through a pipe, because a handler of signals may not take the locks of `threading`; it is open as long as the
    process, because the build may outlive whoever waits for it. The interpreter itself writes to it when a signal
    comes: the kernel may give that to any thread, and then nothing else wakes the main one, where handlers run.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def set(self) -> None:
        """From now on SIGINT and SIGTERM cancel the build. On the main thread."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._cancel)

    def watch(self) -> None:
        """Runs the build, then wakes whoever sleeps."""
        try:
            self._build.run()
        finally:
            os.write(self._write, b"f")

    def sleep(self) -> None:
        """Returns at the first signal, or when the build has ended."""
        while not (self._build.is_cancelled or self._build.finished.is_set()):
            os.read(self._read, 1)

    def _cancel(self, *_: object) -> None:
        self._build.is_cancelled = True


def _events_stream() -> TextIO:
    """The process's stdout for events alone; from here on whatever prints writes to stderr."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return stream


def _end_now() -> None:
    """Ends the process without waiting for TensorRT, which has no way to be stopped; the driver frees its memory."""
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

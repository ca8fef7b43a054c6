"""One stream under load: a thread that sends frames when they are due, and one that hears their answers."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.errors import LoadTestError
from loadtest.stream_connection import StreamConnection


@dataclass(frozen=True, slots=True)
class Pace:
    """When frames are sent.

    Attributes:
        rate: frames per second; None as fast as answers come.
        begin_s: moment of the monotonic clock that the first is due at.
        end_s: none is due from then on.
    """

    rate: float | None
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One frame.

    Attributes:
        due_s: when it was due, or its sending began where it was due at once.
        answered_s: when its answer was heard.
        is_dropped: whether the server dropped it for a newer one.
        error: what the server said was wrong; empty if nothing was.
    """

    due_s: float
    answered_s: float
    is_dropped: bool
    error: str


@dataclass(slots=True)
class StreamLoop:
    """Runs one stream to its end.

    Attributes:
        connection: whose header was accepted.
        frames: framed messages, sent in turn.
        pace: when.
        window: frames that may be without an answer; None for any number.
        records: of every frame that was answered, in order.
        failure: why the stream broke, or None.
    """

    connection: StreamConnection
    frames: Sequence[bytes]
    pace: Pace
    window: int | None
    records: list[FrameRecord] = field(default_factory=list)
    failure: str | None = None
    _due_s: deque[float] = field(default_factory=deque)
    _is_sent: threading.Event = field(default_factory=threading.Event)
    _has_changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        """Blocks until every frame that was sent is answered, or the stream broke."""
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        try:
            while self._await_frame():
                answer = self.connection.hear()
                with self._has_changed:
                    due_s = self._due_s.popleft()
                    self._has_changed.notify_all()
                self.records.append(
                    FrameRecord(due_s, time.monotonic(), bool(answer.get("dropped")), str(answer.get("error", "")))
                )
        except LoadTestError as error:
            self.failure = str(error)
            self._end()
        sender.join()

    def _await_frame(self) -> bool:
        """Whether an answer is owed; waits while that is open."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._due_s or self._is_sent.is_set())
            return bool(self._due_s)

    def _send(self) -> None:
        try:
            for number, frame in enumerate(itertools.cycle(self.frames)):
                due_s = self._wait_until_due(number)
                if due_s is None:
                    break
                with self._has_changed:
                    self._due_s.append(due_s)
                    self._has_changed.notify_all()
                self.connection.send(frame)
        except OSError as error:
            self.failure = self.failure or f"a frame could not be sent: {error}"
        finally:
            self._end()

    def _end(self) -> None:
        """No other frame is sent."""
        with self._has_changed:
            self._is_sent.set()
            self._has_changed.notify_all()

    def _wait_until_due(self, number: int) -> float | None:
        """When the next frame was due, once it is and has a place; None where there is to be no other."""
        due_s = self.pace.begin_s + number / self.pace.rate if self.pace.rate else time.monotonic()
        if due_s >= self.pace.end_s or self._is_sent.is_set():
            return None
        time.sleep(max(0.0, due_s - time.monotonic()))
        if self.window is not None:
            with self._has_changed:
                self._has_changed.wait_for(lambda: len(self._due_s) < (self.window or 0) or self._is_sent.is_set())
        return due_s if self.pace.rate else max(due_s, time.monotonic())

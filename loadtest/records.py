"""What is kept of each request, and the phases of a step. Times are nanoseconds of one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """Where a moment lies in a step."""

    WARM_UP = "warm-up"
    MEASURED = "measured"
    GRACE = "grace"


class Failure(Enum):
    """Why a request got no usable answer; a status other than 200 is `STATUS`."""

    STATUS = "status"
    WRONG = "wrong answer"
    CONNECT = "no connection"
    CLOSED = "connection closed"
    TIMEOUT = "timeout"
    MALFORMED = "malformed answer"
    UNANSWERED = "unanswered at the end"


@dataclass(frozen=True, slots=True)
class Window:
    """The phases of one step: warm-up, then the measured time, then a grace time in which nothing is sent.

    Attributes:
        start_ns: when the warm-up starts.
        warm_up_ns: its length.
        measured_ns: length of the measured time.
        grace_ns: how long answers may still arrive after the last send.
    """

    start_ns: int
    warm_up_ns: int
    measured_ns: int
    grace_ns: int

    @property
    def measured_start_ns(self) -> int:
        """When the measured time starts."""
        return self.start_ns + self.warm_up_ns

    @property
    def end_ns(self) -> int:
        """When the measured time, and with it all sending, ends."""
        return self.measured_start_ns + self.measured_ns

    @property
    def grace_end_ns(self) -> int:
        """When requests that are still out count as unanswered."""
        return self.end_ns + self.grace_ns

    def phase(self, at_ns: int) -> Phase:
        """The phase of a moment; a boundary belongs to the phase that it opens."""
        if at_ns < self.measured_start_ns:
            return Phase.WARM_UP
        return Phase.MEASURED if at_ns < self.end_ns else Phase.GRACE


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request of a step.

    Attributes:
        intended_ns: when it was due; in a closed loop the moment its connection became free.
        sent_ns: when its first byte was written, or None if it never was.
        first_byte_ns: when the first bytes of the answer arrived, or None if none did.
        done_ns: when the answer was complete, or the failure was certain.
        status: HTTP status, or 0 without an answer.
        failure: why it did not succeed, or None if it did.
        rows: rows that it carried.
        server_timing: the answer's `Server-Timing` header, empty if it had none.
    """

    intended_ns: int
    sent_ns: int | None
    first_byte_ns: int | None
    done_ns: int
    status: int
    failure: Failure | None
    rows: int
    server_timing: bytes = b""

    @property
    def latency_ns(self) -> int:
        """Time from when the request was due: waiting that a stalled server caused before the send counts."""
        return self.done_ns - self.intended_ns

    @property
    def send_lag_ns(self) -> int | None:
        """How late it was sent, or None if it never was."""
        return None if self.sent_ns is None else self.sent_ns - self.intended_ns

    @property
    def service_ns(self) -> int | None:
        """Time from the send, which is what a generator without send times would report; None if never sent."""
        return None if self.sent_ns is None else self.done_ns - self.sent_ns

    @property
    def error_label(self) -> str:
        """Bounded label of the failure, such as `http 503` or `timeout`; empty for a success."""
        if self.failure is None:
            return ""
        return f"http {self.status}" if self.failure is Failure.STATUS else self.failure.value

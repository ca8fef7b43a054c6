"""What only a diagnosis wants to know of a model while it serves: who is inside, who waits, how requests arrive.

Promises: every note costs a few additions and allocates nothing that stays; what is kept is bounded. All of it belongs
to the event loop; `marks` takes a copy that any thread may read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from service.buckets import DimSizes

MAX_ARRIVALS = 2048
"""Arrivals that are kept one by one: replaying them takes milliseconds, and they hold less than a megabyte."""


class OccupancyMarks(NamedTuple):
    """`Occupancy` at one moment: subtract two of them for the time between.

    Attributes:
        inside: how many are now.
        area_ns: integral of the number inside over time.
        square_area_ns: integral of its square.
    """

    inside: int
    area_ns: int
    square_area_ns: int


class Occupancy:
    """How many are inside, integrated over time.

    The sums are those of the moments at which the number changed, so a note takes no look at what time has passed
    since the last one, and an exit may be noted late, with the moment at which it was.

    Args:
        since_ns: a moment of the clock before all others; it keeps the sums small.
    """

    __slots__ = ("_area_ns", "_since_ns", "_square_area_ns", "count")

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._area_ns = 0
        self._square_area_ns = 0
        self.count = 0

    def enter(self, at_ns: int) -> None:
        """One more is inside from `at_ns` on."""
        at_ns -= self._since_ns
        count = self.count
        self._area_ns -= at_ns
        self._square_area_ns -= (2 * count + 1) * at_ns
        self.count = count + 1

    def leave(self, at_ns: int, number: int = 1) -> None:
        """`number` fewer are inside from `at_ns` on."""
        at_ns -= self._since_ns
        count = self.count - number
        self._area_ns += number * at_ns
        self._square_area_ns += (self.count * self.count - count * count) * at_ns
        self.count = count

    def add_stay(self, since_ns: int, at_ns: int) -> None:
        """One was inside from `since_ns` to `at_ns`, and nobody noted it before."""
        self.enter(since_ns)
        self.leave(at_ns)

    def take_back(self, since_ns: int, at_ns: int) -> None:
        """One that entered at `since_ns` leaves at `at_ns`, and its stay does not count."""
        self.leave(at_ns)
        self.forget(at_ns - since_ns)

    def forget(self, duration_ns: int) -> None:
        """So much of the time that was spent inside, of stays that have ended, does not count."""
        self._area_ns -= duration_ns

    def marks(self, now_ns: int) -> OccupancyMarks:
        """The integrals up to `now_ns`."""
        elapsed_ns = now_ns - self._since_ns
        count = self.count
        return OccupancyMarks(
            count, self._area_ns + count * elapsed_ns, self._square_area_ns + count * count * elapsed_ns
        )


class ArrivalMarks(NamedTuple):
    """`Arrivals` at one moment: requests and rows so far, sum of the gaps between them and of their squares."""

    requests: int = 0
    rows: int = 0
    gaps_s: float = 0.0
    gaps_squared: float = 0.0


class ArrivalEntry(NamedTuple):
    """A request that arrived at the queue: when its first byte came, its rows, its dims before padding."""

    received_ns: int
    rows: int
    dims: DimSizes


class Arrivals:
    """Requests as they arrive at the queue, refused ones too; the latest `MAX_ARRIVALS` one by one."""

    __slots__ = ("_entries", "_gaps_s", "_gaps_squared", "_last_ns", "_requests", "_rows")

    def __init__(self) -> None:
        self._entries: deque[tuple[int, int, DimSizes]] = deque(maxlen=MAX_ARRIVALS)
        self._last_ns = 0
        self._requests = 0
        self._rows = 0
        self._gaps_s = 0.0
        self._gaps_squared = 0.0

    def add(self, at_ns: int, rows: int, dims: DimSizes, *, received_ns: int) -> None:
        """Notes one that arrives at `at_ns`; these moments never fall, those of first bytes may."""
        if self._requests:
            gap_s = (at_ns - self._last_ns) * 1e-9
            self._gaps_s += gap_s
            self._gaps_squared += gap_s * gap_s
        self._last_ns = at_ns
        self._requests += 1
        self._rows += rows
        self._entries.append((received_ns, rows, dims))

    def marks(self) -> ArrivalMarks:
        """The sums so far."""
        return ArrivalMarks(self._requests, self._rows, self._gaps_s, self._gaps_squared)

    def since(self, since_ns: int) -> tuple[ArrivalEntry, ...]:
        """Those kept whose first byte came at `since_ns` or later, in the order of these; on any thread."""
        # Copied in one call, which no append can interrupt: iterating here would fail when the event loop adds one.
        entries = tuple(self._entries)
        return tuple(ArrivalEntry(*entry) for entry in sorted(entries) if entry[0] >= since_ns)


@dataclass(frozen=True, slots=True)
class ActivityMarks:
    """An `Activity` at one moment.

    Attributes:
        in_flight: requests between their first byte and their answer; of those that failed the area is left out, as
            they are of throughput and latency.
        waiting: requests in the queue.
        arrivals: at the queue.
        batcher_ns: time of the event loop spent on scheduling.
        pool_ns: CPU time of worker threads spent on media.
        pool_rows: rows that came of it.
    """

    in_flight: OccupancyMarks
    waiting: OccupancyMarks
    arrivals: ArrivalMarks
    batcher_ns: int
    pool_ns: int
    pool_rows: int


class Activity:
    """One loaded model's; see `ActivityMarks`.

    Attributes:
        ready_ns: when it became ready.

    Args:
        since_ns: when its load began, by the clock of all other moments.
    """

    __slots__ = ("arrivals", "batcher_ns", "in_flight", "pool_ns", "pool_rows", "ready_ns", "waiting")

    def __init__(self, since_ns: int) -> None:
        self.ready_ns = since_ns
        self.in_flight = Occupancy(since_ns)
        self.waiting = Occupancy(since_ns)
        self.arrivals = Arrivals()
        self.batcher_ns = 0
        self.pool_ns = 0
        self.pool_rows = 0

    def marks(self, now_ns: int) -> ActivityMarks:
        """All of it up to `now_ns`."""
        return ActivityMarks(
            self.in_flight.marks(now_ns),
            self.waiting.marks(now_ns),
            self.arrivals.marks(),
            self.batcher_ns,
            self.pool_ns,
            self.pool_rows,
        )

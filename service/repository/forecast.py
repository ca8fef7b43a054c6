"""When a request to a composed model would end if it began now: asked before any work is done for it.

A member's queue shows what has reached it, but not what requests that are with an earlier member will bring. So the
forecast learns from the requests that run how much of each member's time one takes, and counts what those in progress
have not brought yet. Members are passed one after the other; a request is with the next one when it has left the one
before and what stands there has been worked off: `end = max(end before, backlog here) + own work here`.

How far such forecasts are from the truth is learnt as well: machines are slower under load than at warm-up. As TCP does
with the round trips that it waits for (RFC 6298), the ratio of times and forecasts is kept as a smoothed mean and mean
deviation, and what must not come too late is judged by the mean and twice the deviation. A request that brings more
than others, such as a page full of text, tells nothing of the machine: it is held against a forecast that knew of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MEAN_WEIGHT = 1 / 8
DEVIATION_WEIGHT = 1 / 4
"""Weight of a new value, as in RFC 6298."""

DEVIATIONS = 2
RATIOS = (1 / 4, 16.0)
"""Ratios beyond these tell of something else than a load."""


@dataclass(slots=True, eq=False)
class Progress:
    """A request that has begun.

    Attributes:
        begun_ns: when, on the monotonic clock.
        deadline_ns: when it must have ended.
        forecast_ns: how long it was thought to take, before what forecasts are wrong by.
        expected_ns: what of that is its own work, all members together.
        owed_ns: by member, what it is expected to bring still, in nanoseconds of all lanes.
        brought_ns: by member, what it has brought.
        with_members_ns: how long it has been with members.
    """

    begun_ns: int
    deadline_ns: int
    forecast_ns: float
    expected_ns: float
    owed_ns: dict[str, float]
    brought_ns: dict[str, float] = field(default_factory=dict)
    with_members_ns: int = 0

    @property
    def surprise_ns(self) -> float:
        """By how much its own work, as far as it was brought, is more than was expected; less where negative."""
        return sum(self.brought_ns.values()) - self.expected_ns


class ChainForecast:
    """What requests of one composed model cost, learnt from those that ran. Belongs to the event loop."""

    def __init__(self) -> None:
        self._work_ns: dict[str, float] = {}  # by member, in the order in which requests come to them
        self._owed_ns: dict[str, float] = {}
        self._host_ns: float | None = None
        self._ratio = 1.0
        self._deviation = 0.0

    def raw_ns(self, backlog_ns: Callable[[str], float]) -> float:
        """How long a request takes that begins now, as if backlogs told the truth.

        Args:
            backlog_ns: by member, how far it is behind, in nanoseconds.
        """
        end_ns = self._host_ns or 0.0
        for member, work_ns in self._work_ns.items():
            end_ns = max(end_ns, backlog_ns(member) + self._owed_ns[member]) + work_ns
        return end_ns

    def safe_ns(self, raw_ns: float) -> float:
        """What such a forecast has to be taken for, so that few requests take longer."""
        return raw_ns * (self._ratio + DEVIATIONS * self._deviation)

    def begin(self, *, now_ns: int, deadline_ns: int, raw_ns: float) -> Progress:
        """Counts a request that begins; `end` must follow."""
        progress = Progress(now_ns, deadline_ns, raw_ns, sum(self._work_ns.values()), dict(self._work_ns))
        for member, owed_ns in progress.owed_ns.items():
            self._owed_ns[member] += owed_ns
        return progress

    def bring(self, progress: Progress, member: str, work_ns: float) -> None:
        """Notes what a request hands to a member now: from here on, the member's own queue tells of it."""
        progress.brought_ns[member] = progress.brought_ns.get(member, 0.0) + work_ns
        self._settle(progress, member, work_ns)

    def end(self, progress: Progress, *, now_ns: int, is_late: bool = False) -> None:
        """Learns from a request that ended: with its answer, or because it was or would have been late.

        One that ended for another reason is told of by `forget`.
        """
        least_ns = 0.0 if is_late else -progress.forecast_ns  # one that is late did not come to bring all
        forecast_ns = progress.forecast_ns and max(1.0, progress.forecast_ns + max(least_ns, progress.surprise_ns))
        self.forget(progress)
        taken_ns = now_ns - progress.begun_ns
        if is_late:
            allowed_ns = max(taken_ns, progress.deadline_ns - progress.begun_ns)
            if allowed_ns > self.safe_ns(forecast_ns):
                self._learn_ratio(allowed_ns, forecast_ns)
            return
        self._learn_ratio(taken_ns, forecast_ns)
        host_ns = float(taken_ns - progress.with_members_ns)
        self._host_ns = host_ns if self._host_ns is None else _smoothed(self._host_ns, host_ns, MEAN_WEIGHT)
        for member in (*progress.brought_ns, *(self._work_ns.keys() - progress.brought_ns.keys())):
            brought_ns = progress.brought_ns.get(member, 0.0)
            self._owed_ns.setdefault(member, 0.0)
            self._work_ns[member] = _smoothed(self._work_ns.get(member, brought_ns), brought_ns, MEAN_WEIGHT)

    def forget(self, progress: Progress) -> None:
        """A request has ended, whatever its end: it brings nothing more."""
        for member in progress.owed_ns:
            self._settle(progress, member, progress.owed_ns[member])

    def _settle(self, progress: Progress, member: str, work_ns: float) -> None:
        settled_ns = min(work_ns, progress.owed_ns.get(member, 0.0))
        if settled_ns:
            progress.owed_ns[member] -= settled_ns
            self._owed_ns[member] = max(0.0, self._owed_ns[member] - settled_ns)

    def _learn_ratio(self, taken_ns: float, forecast_ns: float) -> None:
        if not forecast_ns:
            return  # nothing was known when it began
        least, most = RATIOS
        ratio = min(max(taken_ns / forecast_ns, least), most)
        self._deviation = _smoothed(self._deviation, abs(ratio - self._ratio), DEVIATION_WEIGHT)
        self._ratio = _smoothed(self._ratio, ratio, MEAN_WEIGHT)


def _smoothed(old: float, new: float, weight: float) -> float:
    return old + weight * (new - old)

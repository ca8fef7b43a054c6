"""The bounded queue of one model: ordered by urgency within each home, exact about its limits."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from service.batching.pending import Pending, PendingState
from service.buckets import Home
from service.cards import BatchingCard
from service.errors import Overloaded

NO_DEADLINE_NS = 1 << 63


class RequestQueue:
    """Waiting requests by home. Not thread-safe: used by the event loop alone.

    Attributes:
        earliest_deadline_ns: no waiting request expires before this; may lag behind until `expire` is called.
    """

    def __init__(self, limits: BatchingCard, *, model: str) -> None:
        self._limits = limits
        self._model = model
        self._groups: dict[Home, list[Pending]] = {}
        self._count = 0
        self._nbytes = 0
        self._work_ns = [0.0] * (limits.priority_levels + 1)
        self.earliest_deadline_ns = NO_DEADLINE_NS

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pending]:
        for group in self._groups.values():
            yield from group

    @property
    def nbytes(self) -> int:
        """Input bytes of all waiting requests."""
        return self._nbytes

    @property
    def groups(self) -> Mapping[Home, list[Pending]]:
        """Waiting requests by home, each list ascending by `Pending.order`; no list is empty."""
        return self._groups

    def work_before_ns(self, priority: int) -> float:
        """Device time of the waiting requests that go before a new one of `priority`, in nanoseconds."""
        return sum(self._work_ns[: priority + 1])

    def check_room(self, nbytes: int, *, retry_after_s: float) -> None:
        """Refuses what would exceed a limit.

        Raises:
            Overloaded: the queue holds as many requests, or bytes, as it may.
        """
        if self._count >= self._limits.max_queued_requests:
            raise Overloaded(
                f"Exceeds maximum queue size: model '{self._model}' has {self._count} requests waiting, "
                f"max_queued_requests is {self._limits.max_queued_requests}; retry later or send less at once",
                retry_after_s=retry_after_s,
            )
        if self._nbytes + nbytes > self._limits.max_queued_bytes:
            raise Overloaded(
                f"Exceeds maximum queue size: model '{self._model}' has {self._nbytes} bytes waiting, this request "
                f"adds {nbytes}, max_queued_bytes is {self._limits.max_queued_bytes}; retry later or send less at once",
                retry_after_s=retry_after_s,
            )

    def add(self, item: Pending) -> None:
        """Puts a request that `check_room` admitted in its place."""
        group = self._groups.setdefault(item.home, [])
        if not group or group[-1].order <= item.order:
            group.append(item)
        else:
            insort(group, item, key=_order)
        self._account(item, 1)
        self.earliest_deadline_ns = min(self.earliest_deadline_ns, item.deadline_ns)

    def take(self, items: Iterable[Pending]) -> None:
        """Removes dispatched requests; per home they are the most urgent ones, as the policy chooses them."""
        taken = tuple(items)
        for home, count in Counter(item.home for item in taken).items():
            self._drop_range(home, 0, count)
        for item in taken:
            item.state = PendingState.DISPATCHED

    def discard(self, item: Pending) -> bool:
        """Removes one waiting request; False if it is not waiting any more."""
        if item.state is not PendingState.QUEUED:
            return False
        index = bisect_left(self._groups[item.home], item.order, key=_order)
        self._drop_range(item.home, index, index + 1)
        item.state = PendingState.DONE
        return True

    def expire(self, now_ns: int) -> list[Pending]:
        """Removes and returns every request whose deadline has come, and updates `earliest_deadline_ns`."""
        expired: list[Pending] = []
        self.earliest_deadline_ns = NO_DEADLINE_NS
        for home in list(self._groups):
            for priority in range(1, self._limits.priority_levels + 1):
                expired.extend(self._expire_level(home, priority, now_ns))
        for item in expired:
            item.state = PendingState.DONE
        return expired

    def _expire_level(self, home: Home, priority: int, now_ns: int) -> list[Pending]:
        """Within one priority the deadlines ascend, so what has expired is a run at its start."""
        group = self._groups.get(home, [])
        start = bisect_left(group, (priority, 0, 0), key=_order)
        stop = bisect_left(group, (priority, now_ns + 1, 0), key=_order)
        expired = group[start:stop]
        if stop < len(group) and group[stop].order[0] == priority:
            self.earliest_deadline_ns = min(self.earliest_deadline_ns, group[stop].deadline_ns)
        if expired:
            self._drop_range(home, start, stop)
        return expired

    def _drop_range(self, home: Home, start: int, stop: int) -> None:
        group = self._groups[home]
        for item in group[start:stop]:
            self._account(item, -1)
        del group[start:stop]
        if not group:
            del self._groups[home]

    def _account(self, item: Pending, sign: int) -> None:
        self._count += sign
        self._nbytes += sign * item.request.nbytes
        self._work_ns[item.request.priority] += sign * item.work_ns
        if not self._count:
            self._work_ns = [0.0] * len(self._work_ns)  # or rounding would add up for ever


def _order(item: Pending) -> tuple[int, int, int]:
    return item.order

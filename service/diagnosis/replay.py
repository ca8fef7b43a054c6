"""What if: arrivals that were seen, sent through a queue with other lanes, delays or buckets, on measured costs.

The only source of percentiles under a changed policy: they cannot be computed from means. Deterministic: no randomness,
one event after another.

Before the queue may stand stations that take requests in their order, such as the event loop: crowds wait there too.
The queue is the server's own policy with what matters for its figures: whatever waits for the same padded dims joins,
the batch is the prefix with the most rows per second among the batch sizes, and an unfilled one waits for company no
longer than the queue delay. Left out are priorities, deadlines, and lifting a request into larger dims.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.buckets import Bucket, DimSizes
from service.telemetry.snapshot_load import Arrival

RATE_NOISE = 0.03
"""Rates closer than this are equal, and the larger batch wins: so does the server's policy."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A station before the queue: each row takes `service_s` of one of its `servers`, first come, first served."""

    service_s: float
    servers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPolicy:
    """What the arrivals are sent through.

    Attributes:
        costs_s: seconds of a batch, by bucket; these buckets are served and no others.
        lanes: batches that run side by side.
        max_delay_s: how long an unfilled batch waits for company while a lane is idle.
        lane_slowdown: how many times as long a batch takes on these lanes as alone.
        upstream: stations that a request passes before it reaches the queue, in their order.
    """

    costs_s: Mapping[Bucket, float]
    lanes: int = 1
    max_delay_s: float = 0.0
    lane_slowdown: float = 1.0
    upstream: tuple[Upstream, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What became of the arrivals.

    Attributes:
        requests: that were served.
        unserved: that fit no bucket.
        mean_s: from arrival to the end of the batch.
        p50_s: likewise.
        p99_s: likewise.
        rows_per_batch: mean.
        busy_ratio: share of the lanes' time, from the first arrival to the last end.
    """

    requests: int
    unserved: int
    mean_s: float
    p50_s: float
    p99_s: float
    rows_per_batch: float
    busy_ratio: float


class _Item(NamedTuple):
    """A request: when it reached the queue, when the server, and its rows."""

    ready_s: float
    arrived_s: float
    rows: int
    home: DimSizes


@dataclass(slots=True)
class _Waiting:
    """Requests of one home: padded dims with their ascending batch sizes and costs."""

    sizes: tuple[tuple[int, float], ...]
    items: deque[_Item]


@dataclass(frozen=True, slots=True)
class _Choice:
    count: int
    rows: int
    cost_s: float
    is_due_at_once: bool


def replay(arrivals: Sequence[Arrival], policy: ReplayPolicy) -> ReplayResult | None:
    """Sends arrivals through the policy; None if none of them fits a bucket.

    Args:
        arrivals: in the order of their times.
        policy: what serves them.
    """
    homes = _homes(arrivals, policy)
    served = [arrival for arrival in arrivals if (arrival.rows, arrival.dims) in homes]
    if not served:
        return None
    run = _Run(_items(served, homes, policy), policy)
    run.to_end()
    latencies_s = np.asarray(run.latencies_s)
    p50_s, p99_s = np.quantile(latencies_s, (0.5, 0.99))
    elapsed_s = max(run.last_end_s - served[0].at_s, 1e-12)
    return ReplayResult(
        requests=len(served),
        unserved=len(arrivals) - len(served),
        mean_s=float(latencies_s.mean()),
        p50_s=float(p50_s),
        p99_s=float(p99_s),
        rows_per_batch=sum(arrival.rows for arrival in served) / run.batches,
        busy_ratio=run.busy_s / policy.lanes / elapsed_s,
    )


class _Run:
    """One pass over the requests."""

    def __init__(self, items: Sequence[_Item], policy: ReplayPolicy) -> None:
        self._items = items
        self._policy = policy
        self._next = 0
        self._waiting = {
            home: _Waiting(_sizes_at(home, policy.costs_s), deque())
            for home in dict.fromkeys(item.home for item in items)
        }
        self._lanes_free_s = [0.0] * policy.lanes
        self.latencies_s: list[float] = []
        self.batches = 0
        self.busy_s = 0.0
        self.last_end_s = 0.0

    def to_end(self) -> None:
        now_s = self._items[0].ready_s
        while True:
            now_s = max(now_s, self._lanes_free_s[0])
            self._admit(now_s)
            later_s = self._dispatch_or_wait(now_s)
            if later_s is None:
                return
            now_s = later_s

    def _admit(self, now_s: float) -> None:
        while self._next < len(self._items) and self._items[self._next].ready_s <= now_s:
            item = self._items[self._next]
            self._waiting[item.home].items.append(item)
            self._next += 1

    def _dispatch_or_wait(self, now_s: float) -> float | None:
        """Takes the oldest batch that is due; the moment at which to look again, None at the end."""
        moments_s = [self._items[self._next].ready_s] if self._next < len(self._items) else []
        groups = [group for group in self._waiting.values() if group.items]
        for group in sorted(groups, key=lambda group: group.items[0].ready_s):
            choice = _choose(group)
            due_s = now_s if choice.is_due_at_once else group.items[0].ready_s + self._policy.max_delay_s
            if due_s <= now_s:
                self._run_batch(group, choice, now_s)
                return now_s
            moments_s.append(due_s)
        return min(moments_s, default=None)

    def _run_batch(self, group: _Waiting, choice: _Choice, now_s: float) -> None:
        duration_s = choice.cost_s * self._policy.lane_slowdown
        end_s = now_s + duration_s
        heapq.heapreplace(self._lanes_free_s, end_s)
        self.latencies_s.extend(end_s - group.items.popleft().arrived_s for _ in range(choice.count))
        self.batches += 1
        self.busy_s += duration_s
        self.last_end_s = max(self.last_end_s, end_s)


def _choose(group: _Waiting) -> _Choice:
    """The prefix with the most rows per second; of about equal ones the largest."""
    choices: list[_Choice] = []
    count = rows = 0
    items = iter(group.items)
    item = next(items, None)
    for size, cost_s in group.sizes:
        before = count
        while item is not None and rows + item.rows <= size:
            count, rows = count + 1, rows + item.rows
            item = next(items, None)
        if count > before:
            # Full, or leaving requests behind: company would not change it.
            choices.append(_Choice(count, rows, cost_s, item is not None or rows == group.sizes[-1][0]))
        if item is None:
            break
    best = max(choice.rows / choice.cost_s for choice in choices)
    return max(
        (choice for choice in choices if choice.rows / choice.cost_s >= best * (1.0 - RATE_NOISE)),
        key=lambda choice: choice.rows,
    )


def _items(
    arrivals: Sequence[Arrival], homes: Mapping[tuple[int, DimSizes], DimSizes], policy: ReplayPolicy
) -> list[_Item]:
    """The requests as they reach the queue; stations with one service time keep their order."""
    ready_s = [arrival.at_s for arrival in arrivals]
    for station in policy.upstream:
        free_s = [0.0] * station.servers
        for index, arrival in enumerate(arrivals):
            ready_s[index] = max(ready_s[index], free_s[0]) + station.service_s * arrival.rows
            heapq.heapreplace(free_s, ready_s[index])
    made = (
        _Item(ready, arrival.at_s, arrival.rows, homes[arrival.rows, arrival.dims])
        for ready, arrival in zip(ready_s, arrivals, strict=True)
    )
    return sorted(made, key=lambda item: item.ready_s)


def _homes(arrivals: Sequence[Arrival], policy: ReplayPolicy) -> dict[tuple[int, DimSizes], DimSizes]:
    """By rows and dims the least padded dims that hold them; those that nothing holds are absent."""
    buckets = sorted(policy.costs_s, key=lambda bucket: (bucket.volume, bucket))
    homes: dict[tuple[int, DimSizes], DimSizes] = {}
    for rows, dims in {(arrival.rows, arrival.dims) for arrival in arrivals}:
        fitting = [
            bucket
            for bucket in buckets
            if bucket.padded_size >= rows and all(low <= high for low, high in zip(dims, bucket.dims, strict=True))
        ]
        if fitting:
            homes[rows, dims] = fitting[0].dims
    return homes


def _sizes_at(dims: DimSizes, costs_s: Mapping[Bucket, float]) -> tuple[tuple[int, float], ...]:
    return tuple(sorted((bucket.padded_size, cost_s) for bucket, cost_s in costs_s.items() if bucket.dims == dims))

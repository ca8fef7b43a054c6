"""Keeps spare lanes full for a moment, and tells how many batches they ran."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from service.batching.lane_count import finishing
from service.batching.lane_pool import LanePool
from service.requests import Batch, Clock
from service.runtime.protocol import Backend, Lane, Ticket
from service.units import NS_PER_S

LEAST_BATCHES = 3
"""That each lane ends within the measured time: the first of them only begins it."""


@contextmanager
def spare_lanes(backend: Backend) -> Iterator[LanePool]:
    """Lanes beside those that serve; closed at the end, which the backend survives. There are none at first."""
    pool = LanePool(backend, _no_batches)
    try:
        yield pool
    finally:
        pool.shrink(0)


def batches_per_s(pool: LanePool, batch: Batch, *, lanes: int, depth: int, duration_ns: int, clock: Clock) -> float:
    """Rate of the first `lanes` lanes together, from batch's end to batch's end; blocking.

    Args:
        pool: lanes that are warm in the batch's bucket.
        batch: what each runs, over and over.
        lanes: how many of them.
        depth: batches that a lane may hold at once.
        duration_ns: how long at least.
        clock: nanoseconds that only grow.

    Raises:
        ServiceError: a lane failed.
    """
    start = threading.Barrier(lanes)

    def drive(lane: Lane) -> float:
        return _drive(lane, batch, depth=depth, duration_ns=duration_ns, start=start, clock=clock)

    return sum(pool.call_together(drive, count=lanes))


def _drive(lane: Lane, batch: Batch, *, depth: int, duration_ns: int, start: threading.Barrier, clock: Clock) -> float:
    tickets: deque[Ticket] = deque()
    ends_ns: list[int] = []
    with finishing(lane, tickets):
        start.wait()
        until_ns = clock() + duration_ns
        while len(ends_ns) < LEAST_BATCHES or ends_ns[-1] < until_ns:
            while len(tickets) < depth:
                tickets.append(lane.enqueue(batch))
            lane.sync(tickets.popleft())
            ends_ns.append(clock())
        while tickets:
            lane.sync(tickets.popleft())
    return (len(ends_ns) - 1) * NS_PER_S / max(1, ends_ns[-1] - ends_ns[0])


def _no_batches(lane_id: int, batch: Batch, outcome: object) -> None:
    raise AssertionError("a spare lane gets its batches from its own thread")

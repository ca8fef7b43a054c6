"""What a batcher notes for the diagnosis: arrivals, the queue's length, why requests waited, what batches held.

A request waits in the queue for one of two reasons, which the policy tells apart: no lane has room, or the policy chose
to wait until a batch has more company. The second is integrated here, and a request's share of it is the difference
between its dispatch and its arrival. All on the event loop.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from service.batching.pending import Pending
from service.buckets import Bucket, DimSizes, Form
from service.requests import Batch, BatchFacts, BatchTimings
from service.telemetry.activity import Activity

MAX_COLD_KEYS = 4096
"""Lanes times buckets that are remembered as used; a model served at exact sizes could make any number."""


class QueueWatch:
    """One batcher's notes.

    Args:
        activity: takes those that are counted.
        is_exact: whether buckets may be met that start-up could not warm.
    """

    def __init__(self, activity: Activity, *, is_exact: bool) -> None:
        self.activity = activity
        self._is_exact = is_exact
        self._kept_open_ns = 0
        self._open_since_ns = 0
        self._used: set[tuple[int, int, DimSizes, Form]] = set()

    def queued(self, item: Pending) -> None:
        """A request has joined the queue."""
        now_ns = item.queued_ns
        self.activity.waiting.enter(now_ns)
        item.kept_open_ns = self._kept_open_ns + (now_ns - self._open_since_ns if self._open_since_ns else 0)

    def left(self, items: Collection[object], now_ns: int) -> None:
        """Requests have left the queue without being run."""
        self.activity.waiting.leave(now_ns, len(items))

    def step_began(self, now_ns: int) -> None:
        """The policy is asked: what was kept open until now was so by its last word."""
        if self._open_since_ns:
            self._kept_open_ns += now_ns - self._open_since_ns
            self._open_since_ns = 0

    def kept_open(self, now_ns: int) -> None:
        """The policy lets everything wait for company although a lane has room."""
        self._open_since_ns = now_ns

    def dispatched(self, items: Sequence[Pending], now_ns: int) -> None:
        """Requests have left the queue for a lane: their stamps learn it, and how long they waited for company."""
        kept_open_ns = self._kept_open_ns
        for item in items:
            stamps = item.request.stamps
            stamps.dispatched = now_ns
            stamps.formed = stamps.prepared + kept_open_ns - item.kept_open_ns
        self.activity.waiting.leave(now_ns, len(items))

    def batch_facts(self, batch: Batch, lane_id: int, first: Pending) -> BatchFacts:
        """What was in a batch that ran, and how long its first request had waited; its stamps are those of the lane."""
        stamps = first.request.stamps
        dispatched = stamps.dispatched
        waits = dispatched - first.queued_ns, stamps.formed - stamps.prepared, stamps.started - dispatched
        if not batch.bucket.dims:
            return BatchFacts(batch.size, 0, *waits)
        volume = sum(request.rows * math.prod(request.dims) for request in batch.requests)
        return BatchFacts(volume, int(self._is_exact and self._is_first(batch.bucket, lane_id)), *waits)

    def _is_first(self, bucket: Bucket, lane_id: int) -> bool:
        key = (lane_id, bucket.padded_size, bucket.dims, bucket.form)
        if key in self._used or len(self._used) >= MAX_COLD_KEYS:
            return False
        self._used.add(key)
        return True


def stamp_lane_times(items: Sequence[Pending], timings: BatchTimings, completed_ns: int) -> None:
    """Gives the requests of a batch that ran its moments on the lane."""
    uploaded_ns = timings.copied_in - (timings.device.wait if timings.device is not None else 0)
    for item in items:
        stamps = item.request.stamps
        stamps.started = timings.started
        stamps.uploaded = uploaded_ns
        stamps.copied_in = timings.copied_in
        stamps.computed = timings.computed
        stamps.copied_out = timings.copied_out
        stamps.completed = completed_ns

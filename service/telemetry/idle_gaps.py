"""Time in which a device had nothing to compute although requests that came before waited for it. Pure.

A gap lies between the end of everything computed so far and the beginning of the next batch, and counts only where the
batch's first request had joined the queue before the gap began: else the device was idle because nobody asked for
anything, and what then passes until it works is a request's latency, not a gap. What filled the gap is told by the
batch's own moments, in their order:

    formation    the policy kept the batch open for company
    sync_notify  until the event loop knew that the lane had room, and dispatched
    host_submit  until the lane's thread began; and what it did beside copying
    copy         copying in
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

GAP_CAUSES = ("formation", "host_submit", "sync_notify", "copy")

Moments: TypeAlias = NDArray[np.int64]


def are_gaps(free: Moments, queued_at: Moments, computing: Moments) -> NDArray[np.bool_]:
    """bool[n] whether the device was idle before each batch although its first request waited.

    Args:
        free: int64[n] before each batch, the moment at which all earlier ones were computed; 0 before the first.
        queued_at: int64[n] when its first request joined the queue.
        computing: int64[n] when it began to be computed.
    """
    return (queued_at < free) & (computing > free)


def gaps_ns(free: Moments, started: Moments, computing: Moments, waits: Moments) -> Moments:
    """int64[GAP_CAUSES] the sum of gaps by cause, in nanoseconds.

    Args:
        free: int64[n] as of `are_gaps`, of gaps alone; the others likewise.
        started: int64[n] when the lane's thread began.
        computing: int64[n] when the batch began to be computed.
        waits: int64[n, 3] nanoseconds: kept open, from the dispatch to `started`, copying in.
    """
    kept_open, handed_over, copying = waits.T
    dispatched = started - handed_over
    until_dispatch = np.maximum(dispatched - free, 0)
    until_start = np.maximum(started - np.maximum(free, dispatched), 0)
    on_lane = computing - np.maximum(free, started)
    formation, copy = np.minimum(kept_open, until_dispatch), np.minimum(copying, on_lane)
    causes = (formation, until_start + on_lane - copy, until_dispatch - formation, copy)
    return np.array([cause.sum() for cause in causes], np.int64)

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


def gaps_ns(free_ns: Moments, started: Moments, computing: Moments, waits: Moments) -> Moments:
    """int64[GAP_CAUSES] the gaps' sum by cause, in nanoseconds.

    Args:
        free_ns: int64[n] before each batch, the moment at which all earlier ones were computed; 0 before the first.
        started: int64[n] when the lane's thread began.
        computing: int64[n] when the batch began to be computed.
        waits: int64[n, 4] nanoseconds: in the queue, of that kept open, from the dispatch to `started`, copying in.
    """
    queued, kept_open, handed_over, copying = waits.T
    dispatched = started - handed_over
    is_gap = (free_ns > 0) & (dispatched - queued < free_ns) & (computing > free_ns)
    free = np.where(is_gap, free_ns, computing)
    until_dispatch = np.clip(dispatched - free, 0, None)
    formation = np.minimum(kept_open, until_dispatch)
    until_start = np.clip(started - np.maximum(free, dispatched), 0, None)
    on_lane = np.clip(computing - np.maximum(free, started), 0, None)
    copy = np.minimum(copying, on_lane)
    causes = (formation, until_start + on_lane - copy, until_dispatch - formation, copy)
    return np.array([cause.sum() for cause in causes], np.int64)

"""How many lanes pay on a device, measured: more of them until the next one adds too little."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

from service.batching.lane_pool import LanePool
from service.buckets import Bucket
from service.errors import ServiceError
from service.models import ModelSpec
from service.requests import Clock
from service.runtime.protocol import Backend, Lane, Ticket
from service.runtime.synthetic import synthetic_batch
from service.units import NS_PER_MS, NS_PER_S

LANE_LIMIT = 8
"""Lanes that are tried at most: beyond it their threads contend for the interpreter."""

MIN_GAIN = 0.10
"""The share of throughput that a lane must add.

While n lanes are busy a batch takes n / throughput: a second lane that adds a tenth lets every batch take 1.8 times as
long. Waiting requests more than get that back where lanes add up; below a tenth they do not, and the memory is lost.
At low load the number does not matter: a batch goes to the lane that is least busy.
"""

WINDOW_NS = 60 * NS_PER_MS
MIN_BATCHES = 4


def is_measured(backend: Backend) -> bool:
    """Whether the number of lanes is found at start-up: the card leaves it open, and there is a device."""
    spec = backend.spec
    return spec.card.lanes.count is None and not spec.buckets.is_exact and backend.free_device_bytes() is not None


def representatives(buckets: Collection[Bucket]) -> tuple[Bucket, ...]:
    """The smallest, the middle and the largest bucket by volume, as far as they are different; what `knee` weighs.

    Small batches gain by every lane, for launching them is most of their cost; there a larger batch would gain more.
    The largest gain by none. So neither decides alone: the median of the three does.
    """
    ordered = sorted(buckets, key=lambda bucket: (bucket.volume, bucket))
    return tuple(dict.fromkeys((ordered[0], ordered[len(ordered) // 2], ordered[-1])))


def knee(rates: Sequence[Sequence[float]]) -> int:
    """The number of lanes beyond which the next one does not pay.

    Args:
        rates: with one lane, with two, and so on: items per second in each of the same buckets.

    Returns:
        From 1 to `len(rates)`; the last one says that another lane should be tried.
    """
    count = 1
    for fewer, more in pairwise(rates):
        if statistics.median(after / before for before, after in zip(fewer, more, strict=True)) < 1 + MIN_GAIN:
            break
        count += 1
    return count


def items_per_s(pool: LanePool, spec: ModelSpec, bucket: Bucket, *, lane_depth: int, clock: Clock) -> float:
    """Throughput of all lanes of the pool together, each kept full of full batches; blocks for some `WINDOW_NS`.

    Raises:
        ExecutionFailed, DeviceError: a lane failed.
    """
    batch = synthetic_batch(spec, bucket)
    began_ns: list[int] = []
    start = threading.Barrier(len(pool), lambda: began_ns.append(clock()))

    def drive(lane: Lane) -> int:
        tickets: deque[Ticket] = deque()
        done = 0
        start.wait()
        with finishing(lane, tickets):
            while done < MIN_BATCHES or clock() - began_ns[0] < WINDOW_NS:
                tickets.append(lane.enqueue(batch))
                if len(tickets) == lane_depth:
                    lane.sync(tickets.popleft())
                    done += 1
            while tickets:
                lane.sync(tickets.popleft())
                done += 1
        return done

    batches = sum(pool.call_together(drive))
    return batches * bucket.padded_size * NS_PER_S / max(1, clock() - began_ns[0])


@contextmanager
def finishing(lane: Lane, tickets: deque[Ticket]) -> Iterator[None]:
    """Left by an error, syncs every ticket that is still there, for a lane that goes on must hold no batch.

    Args:
        lane: what gave the tickets; on its own thread.
        tickets: the oldest first; emptied.
    """
    try:
        yield
    except BaseException:
        while tickets:
            with suppress(ServiceError):  # what failed first is what must be told
                lane.sync(tickets.popleft())
        raise

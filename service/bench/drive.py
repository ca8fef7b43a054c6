"""Drives lanes as fast as they take batches, each on a thread of its own, as the batcher would under endless load."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.batching.lane_count import finishing
from service.batching.lane_pool import LanePool
from service.requests import Batch, BatchTimings, Clock
from service.runtime.protocol import Backend, Lane, Ticket

WARM_BATCHES = 20
"""Batches before the measured time: the first ones find cold caches, and clocks that the device has lowered."""


@dataclass(frozen=True, slots=True)
class DriveResult:
    """What one or several lanes did together.

    Attributes:
        batches: finished within the measured time.
        duration_s: the measured time.
        host_s: time that the lanes' threads kept a core busy in it, together.
        timings: of every batch, those of one lane in their order.
        enqueues_ns: how long the `enqueue` of each of them kept the lane's thread: to gather what must be, and to
            launch.
    """

    batches: int
    duration_s: float
    host_s: float
    timings: tuple[BatchTimings, ...]
    enqueues_ns: tuple[int, ...]

    @property
    def durations_ns(self) -> tuple[int, ...]:
        """Of every batch, from the lane's taking it to its results."""
        return tuple(timings.copied_out - timings.started for timings in self.timings)

    @property
    def batches_per_s(self) -> float:
        """Throughput of all lanes together."""
        return self.batches / self.duration_s

    @property
    def host_us_per_batch(self) -> float:
        """Microseconds of one core per batch: gather, launches, scatter, and a wait that spins."""
        return self.host_s / self.batches * 1e6


class DrivenLanes:
    """Lanes with their threads, warm in some buckets, that are driven again and again; used by one thread.

    Args:
        backend: makes the lanes; closed by whoever opened it.
        count: lanes.
        clock: monotonic nanoseconds.
    """

    def __init__(self, backend: Backend, count: int, *, clock: Clock = time.monotonic_ns) -> None:
        self._depth = backend.lane_depth
        self._count = count
        self._pool = LanePool(backend, _no_batches)
        self._clock = clock

    def start(self, warm_up: Callable[[Lane], None]) -> None:
        """Makes the lanes and lets `warm_up` prepare each, on its own thread, one after another.

        Raises:
            ServiceError: a lane could not be made or warmed; those that were made are closed.
        """
        try:
            for lane_id in range(self._count):
                self._pool.grow(lane_id + 1)
                self._pool.call(lane_id, warm_up)
        except BaseException:
            self.close()
            raise

    def drive(self, batches: Sequence[Batch], duration_s: float) -> DriveResult:
        """Gives every lane `batches`, over and over, for `duration_s`; as many at once as a lane holds.

        Raises:
            ServiceError: a lane failed.
        """
        start = threading.Barrier(len(self._pool))

        def run(lane: Lane) -> DriveResult | None:
            return _drive_one(lane, batches, duration_s, depth=self._depth, start=start, clock=self._clock)

        results = [result for result in self._pool.call_together(run) if result is not None]
        return DriveResult(
            batches=sum(result.batches for result in results),
            duration_s=max(result.duration_s for result in results),
            host_s=sum(result.host_s for result in results),
            timings=tuple(timings for result in results for timings in result.timings),
            enqueues_ns=tuple(duration for result in results for duration in result.enqueues_ns),
        )

    def close(self) -> None:
        """Closes every lane; idempotent."""
        self._pool.shrink(0)


def _drive_one(
    lane: Lane, batches: Sequence[Batch], duration_s: float, *, depth: int, start: threading.Barrier, clock: Clock
) -> DriveResult | None:
    """What one lane did; None where another failed before the start, which then raises."""
    feed = _Feed(lane, batches, depth, clock)
    with finishing(lane, feed.open):
        try:
            for _ in range(WARM_BATCHES):
                feed.step()
            start.wait()
            timings = []
            feed.enqueues_ns.clear()
            host_from_ns, from_ns = time.thread_time_ns(), clock()
            until_ns = from_ns + round(duration_s * 1e9)
            while (now_ns := clock()) < until_ns:
                timings.append(feed.step())
            host_ns = time.thread_time_ns() - host_from_ns
        except threading.BrokenBarrierError:
            feed.finish()
            return None
        except BaseException:
            start.abort()
            raise
        feed.finish()
    return DriveResult(len(timings), (now_ns - from_ns) / 1e9, host_ns / 1e9, tuple(timings), tuple(feed.enqueues_ns))


class _Feed:
    """Keeps a lane full: every step finishes the oldest batch and begins another."""

    def __init__(self, lane: Lane, batches: Sequence[Batch], depth: int, clock: Clock) -> None:
        self._clock = clock
        self.enqueues_ns: list[int] = []
        self._open_enqueues_ns: deque[int] = deque()
        self._lane = lane
        self._batches = batches
        self._depth = depth
        self._next = 0
        self.open: deque[Ticket] = deque()

    def step(self) -> BatchTimings:
        """The moments of the batch that this step finished."""
        while len(self.open) < self._depth:
            batch = self._batches[self._next % len(self._batches)]
            self._next += 1
            from_ns = self._clock()
            self.open.append(self._lane.enqueue(batch))
            self._open_enqueues_ns.append(self._clock() - from_ns)
        timings = self._lane.sync(self.open.popleft()).timings
        self.enqueues_ns.append(self._open_enqueues_ns.popleft())
        return timings

    def finish(self) -> None:
        while self.open:
            self._lane.sync(self.open.popleft())


def _no_batches(lane_id: int, batch: Batch, outcome: object) -> None:
    raise AssertionError("a driven lane gets its batches from its own thread")

"""What a lane has done so far, and what it holds of the device: written by its one thread, read by any."""

from __future__ import annotations

from types import MappingProxyType

from service.buckets import Bucket
from service.device_figures import GraphMiss, LaneFigures, MemoryOwner


class Tally:
    """The totals behind `Lane.figures`.

    Only the lane's thread writes, and every value is written by one assignment, so nothing is locked. A bucket's keys
    appear when it is warmed; a reader takes copies of the dictionaries, each by one step of the interpreter.
    """

    def __init__(self) -> None:
        self._replays: dict[Bucket, int] = {}
        self._eager_runs: dict[Bucket, int] = {}
        self._misses: dict[Bucket, GraphMiss] = {}
        self._device_bytes: dict[MemoryOwner, int] = {}
        self._h2d_bytes = 0
        self._d2h_bytes = 0
        self._allocations = (0, 0)

    def add_bucket(self, bucket: Bucket) -> None:
        """Begins to count a bucket."""
        self._replays[bucket] = 0
        self._eager_runs[bucket] = 0

    def add_miss(self, bucket: Bucket, miss: GraphMiss) -> None:
        """Says why a bucket runs without a graph."""
        self._misses[bucket] = miss

    def add_batch(self, bucket: Bucket, *, is_replay: bool, h2d_bytes: int, d2h_bytes: int) -> None:
        """Counts a batch that was given to the device."""
        counts = self._replays if is_replay else self._eager_runs
        counts[bucket] += 1
        self._h2d_bytes += h2d_bytes
        self._d2h_bytes += d2h_bytes

    def set_memory(self, owner: MemoryOwner, nbytes: int) -> None:
        """Says how much memory of the device the lane holds for one purpose."""
        self._device_bytes[owner] = nbytes

    def set_allocations(self, count: int, spent_ns: int) -> None:
        """Says how often the lane has allocated memory while it ran batches, and how long that took."""
        self._allocations = (count, spent_ns)

    def forget_memory(self) -> None:
        """The lane is closed: it holds nothing any more."""
        self._device_bytes = {}

    def figures(self) -> LaneFigures:
        """The totals now; safe on every thread."""
        allocations, allocation_ns = self._allocations
        return LaneFigures(
            replays=MappingProxyType(self._replays.copy()),
            eager_runs=MappingProxyType(self._eager_runs.copy()),
            graph_misses=MappingProxyType(self._misses.copy()),
            h2d_bytes=self._h2d_bytes,
            d2h_bytes=self._d2h_bytes,
            device_bytes=MappingProxyType(self._device_bytes.copy()),
            allocations=allocations,
            allocation_ns=allocation_ns,
        )

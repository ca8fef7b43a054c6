"""What the lanes of one model hold: which batches, of which requests, and until when by the cost table.

Promises: every batch that begins ends once, and gives back the very requests that it began with.
"""

from __future__ import annotations

from collections.abc import Iterator

from service.batching.pending import Pending
from service.requests import Batch


class LaneLoad:
    """Batches on lanes. Changed by the event loop alone; its counts are plain numbers that any thread may read.

    Args:
        lane_count: lanes, numbered from 0; each holds nothing.

    Attributes:
        in_flight: per lane the batches that it holds.
        requests: those of all batches that are held.
    """

    def __init__(self, lane_count: int) -> None:
        self.in_flight = [0] * lane_count
        self.requests = 0
        self._free_at_ns = [0] * lane_count
        self._items: dict[int, tuple[Pending, ...]] = {}

    def __len__(self) -> int:
        """Lanes."""
        return len(self.in_flight)

    @property
    def is_empty(self) -> bool:
        """Whether no lane holds anything."""
        return not self._items

    @property
    def busy_lanes(self) -> int:
        """Lanes that hold at least one batch."""
        return sum(1 for held in self.in_flight if held)

    def items(self) -> Iterator[Pending]:
        """The requests of all batches that are held."""
        for items in self._items.values():
            yield from items

    def begin(self, lane_id: int, batch: Batch, items: tuple[Pending, ...], *, now_ns: int, cost_ns: int) -> None:
        """A lane gets a batch at `now_ns`, which takes it `cost_ns` once those before it are done."""
        self.in_flight[lane_id] += 1
        self.requests += len(items)
        self._free_at_ns[lane_id] = max(now_ns, self._free_at_ns[lane_id]) + cost_ns
        self._items[id(batch)] = items

    def end(self, lane_id: int, batch: Batch) -> tuple[Pending, ...]:
        """A lane is done with a batch; returns its requests, in row order."""
        self.in_flight[lane_id] -= 1
        if not self.in_flight[lane_id]:
            self._free_at_ns[lane_id] = 0
        items = self._items.pop(id(batch))
        self.requests -= len(items)
        return items

    def remaining_ns(self, now_ns: int) -> int:
        """What the lanes still have to do at `now_ns`, by the costs of what they hold: the sum over all lanes."""
        return sum(max(0, free_at_ns - now_ns) for free_at_ns in self._free_at_ns)

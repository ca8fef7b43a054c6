"""Which host memory the device can copy by itself: what was allocated pinned, or registered, through this package."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort


class HostRanges:
    """Ranges of page-locked host memory. Thread-safe; asking takes no lock and no call of the driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: list[tuple[int, int]] = []
        self._columns: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def add(self, address: int, nbytes: int) -> None:
        """The memory is page-locked from now on."""
        with self._lock:
            insort(self._ranges, (address, address + nbytes))
            self._publish()

    def remove(self, address: int, nbytes: int) -> None:
        """It is not any more; said before it is unlocked, so that nobody begins a copy in between."""
        with self._lock:
            self._ranges.remove((address, address + nbytes))
            self._publish()

    def covers(self, address: int, nbytes: int) -> bool:
        """Whether all of the memory lies in one range."""
        starts, ends = self._columns
        index = bisect_right(starts, address) - 1
        return index >= 0 and address + nbytes <= ends[index]

    def _publish(self) -> None:
        """Both columns by one assignment, so that a reader never sees one without the other."""
        self._columns = (tuple(start for start, _ in self._ranges), tuple(end for _, end in self._ranges))

"""Which padded sizes suit the traffic: an exact dynamic program, and the costs of sizes between measured ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of a batch by its volume (padded rows times padded dims), on straight lines between measured ones.

    Attributes:
        points: ascending volumes and their seconds; not empty.
    """

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, measured: Iterable[tuple[int, float]]) -> CostCurve | None:
        """The curve through measured volumes, the dearest of equal ones; None without any."""
        dearest: dict[int, float] = {}
        for volume, cost_s in measured:
            dearest[volume] = max(cost_s, dearest.get(volume, cost_s))
        return cls(tuple(sorted(dearest.items()))) if dearest else None

    @property
    def least_volume(self) -> int:
        """Below it nothing was measured."""
        return self.points[0][0]

    def at(self, volume: float) -> float:
        """Seconds at `volume`; outside of what was measured, those of the nearest end.

        Never less than something measured below it would allow: a smaller batch is not assumed to be cheaper.
        """
        volumes = [point[0] for point in self.points]
        index = bisect_left(volumes, volume)
        if index == 0:
            return self.points[0][1]
        if index == len(volumes):
            return self.points[-1][1]
        (low, low_s), (high, high_s) = self.points[index - 1], self.points[index]
        return low_s + (high_s - low_s) * (volume - low) / (high - low)


def best_sizes(counts: Mapping[int, int], cost_s: Callable[[int], float], limit: int) -> tuple[int, ...]:
    """The at most `limit` padded sizes that serve these sizes at the least total cost.

    Exact, by D[k][j] = min over i of D[k-1][i] + (C_j - C_i) * cost(x_j) over the ascending sizes x with cumulative
    counts C: each padded size is one that was seen, the last is the largest. O(limit * n^2) for n distinct sizes.

    Args:
        counts: how often each size was seen; not empty.
        cost_s: seconds of one request that runs padded to a size, not falling.
        limit: at least 1.
    """
    sizes = sorted(counts)
    cumulative = np.concatenate(([0.0], np.cumsum([counts[size] for size in sizes], dtype=float)))
    costs = np.asarray([cost_s(size) for size in sizes])
    count = len(sizes)
    total = cumulative[1:] * costs
    came_from = [np.zeros(count, np.int64)]
    for _ in range(min(limit, count) - 1):
        before = np.concatenate(([0.0], total))
        # candidates[i, j]: sizes up to the i-th (exclusive) served before, those from i to j padded to the j-th
        candidates = before[:-1, np.newaxis] + (cumulative[np.newaxis, 1:] - cumulative[:-1, np.newaxis]) * costs
        candidates[np.tril_indices(count, -1)] = np.inf
        came_from.append(candidates.argmin(axis=0))
        total = candidates.min(axis=0)
    return _boundaries(sizes, came_from)


def total_cost_s(counts: Mapping[int, int], cost_s: Callable[[int], float], sizes: Sequence[int]) -> float:
    """Seconds of all these requests, each padded to the least of the ascending `sizes` that holds it.

    What is larger than all of them runs at its own size.
    """

    def padded(size: int) -> int:
        index = bisect_left(sizes, size)
        return sizes[index] if index < len(sizes) else size

    return sum(count * cost_s(padded(size)) for size, count in counts.items())


def _boundaries(
    sizes: Sequence[int], came_from: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]
) -> tuple[int, ...]:
    chosen: list[int] = []
    end = len(sizes) - 1
    for starts in reversed(came_from):
        chosen.append(sizes[end])
        end = int(starts[end]) - 1
        if end < 0:
            break
    return tuple(reversed(chosen))

"""Histograms that take a whole matrix of observations at once, and never change: adding makes new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

Observations = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """Several histograms over the same bounds, such as one per stage.

    Attributes:
        bounds: [bounds] ascending inclusive upper bounds, in the unit of the observations; beyond the last is `+Inf`.
        counts: int64[columns, bounds + 1] observations per interval, not cumulative.
        sums: per column the sum of its observations; Python numbers, since nanoseconds of many concurrent requests
            overflow 64 bits within months.
    """

    bounds: Observations
    counts: NDArray[np.int64]
    sums: tuple[float, ...]

    @classmethod
    def empty(cls, bounds: Sequence[float], columns: int = 1) -> Histograms:
        """Histograms without observations; whole-numbered bounds make exact whole-numbered sums."""
        array = np.array(bounds)
        return cls(array, np.zeros((columns, len(array) + 1), np.int64), (0,) * columns)

    def plus(self, observations: NDArray[Any]) -> Histograms:
        """These histograms and more observations.

        Args:
            observations: [n, columns] in the unit of the bounds; n may be 0.
        """
        columns, intervals = self.counts.shape
        interval = np.searchsorted(self.bounds, observations, side="left")
        flat = (interval + np.arange(columns) * intervals).ravel()
        counts = np.bincount(flat, minlength=columns * intervals).reshape(columns, intervals)
        added: list[float] = observations.sum(axis=0).tolist()
        sums = tuple(total + more for total, more in zip(self.sums, added, strict=True))
        return Histograms(self.bounds, self.counts + counts, sums)

    def count(self, column: int = 0) -> int:
        """Observations of a column."""
        return int(self.counts[column].sum())

    def cumulative(self, column: int = 0) -> list[int]:
        """Observations at or below each bound of a column; the last entry is all of them."""
        return list(accumulate(self.counts[column].tolist()))

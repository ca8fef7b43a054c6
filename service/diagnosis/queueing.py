"""Mean latency of a device that runs whatever waits as one batch, in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.buckets import Bucket, DimSizes


@dataclass(frozen=True, slots=True)
class AffineCost:
    """A batch of b rows takes `fixed_s + row_s * b` seconds."""

    fixed_s: float
    row_s: float

    def scaled(self, factor: float) -> AffineCost:
        """Batches that take `factor` times as long."""
        return AffineCost(self.fixed_s * factor, self.row_s * factor)


def affine_cost(costs_s: Mapping[Bucket, float], dims: DimSizes) -> AffineCost | None:
    """The line nearest to the measured costs at these dims (least squares); None of fewer than two batch sizes."""
    points = [(bucket.padded_size, cost_s) for bucket, cost_s in costs_s.items() if bucket.dims == dims]
    if len({rows for rows, _ in points}) < 2:
        return None
    rows, seconds = np.asarray(points, dtype=float).T
    row_s, fixed_s = np.polyfit(rows, seconds, 1)
    return AffineCost(max(0.0, float(fixed_s)), max(0.0, float(row_s)))


def mean_latency_s(rows_per_s: float, cost: AffineCost) -> float | None:
    """Mean time from arrival to the end of the batch for Poisson arrivals; None if the device cannot keep up.

    An upper bound, within a tenth of what replays give: min(phi0, phi1) of Inoue, "Queueing analysis of GPU-based
    inference servers with dynamic batching", Performance Evaluation 2021.
    """
    used = rows_per_s * cost.row_s
    if used >= 1.0:
        return None
    wait = rows_per_s * cost.fixed_s
    phi0 = (cost.row_s + cost.fixed_s) / (2 * (1 - used)) * (1 + 2 * wait + (1 - wait) / (1 + used))
    phi1 = 1.5 * cost.fixed_s / (1 - used) + cost.row_s / 2 * (used + 2) / (1 - used**2)
    return min(phi0, phi1)

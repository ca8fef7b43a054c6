"""Medians and their confidence intervals, of few rounds. Pure: the same samples, the same answer.

The interval is the percentile bootstrap of the median (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
chapter 13): it needs no assumption of how times are distributed, which are skewed and have two modes as often as one.
Where two things are compared, rounds of both were measured in turns, and the comparison is made round by round: what
disturbs a round, disturbs both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.telemetry.snapshot_probes import Interval

RESAMPLES = 1000
SEED = 20261130
CONFIDENCE = 0.95

LEAST_ROUNDS = 5
"""Fewer say nothing of how far a median can be trusted, and are thrown away."""


def median_interval(samples: Sequence[float]) -> Interval | None:
    """The median of one figure per round, and its 95 % interval; None of fewer than `LEAST_ROUNDS`."""
    if len(samples) < LEAST_ROUNDS:
        return None
    values = np.asarray(samples, np.float64)
    rng = np.random.default_rng(SEED)
    drawn = np.median(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1.0 - tail))
    value = float(np.median(values))
    return Interval(value, min(value, float(low)), max(value, float(high)))


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval | None:
    """The median ratio of two figures that each round gave, the denominators above 0."""
    return median_interval([above / below for above, below in zip(numerators, denominators, strict=True)])

"""Simultaneous confidence intervals for ratios of times, by resampling rounds. Pure; the same input, the same answer.

The estimate of a place is the ratio of its times: each round gives the logarithm of its median, a side's value is their
mean without the highest and the lowest fifth (a neighbour that disturbs one round in ten then moves nothing), and the
difference of two sides is the logarithm of the ratio. Where rounds of two sides were measured in turns, the difference
is taken round by round, which cancels what both felt. Standard errors of trimmed means: Yuen, "The two-sample trimmed t
for unequal population variances", Biometrika 1974.

The interval is a bootstrap-t (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 12): rounds are
drawn again with replacement, and every draw is measured in its own standard error, which keeps intervals honest where
there are only five or ten rounds. One draw is used for all places at once, and the largest deviation over the places
sets the width of every interval (the "max T" of Westfall and Young, "Resampling-Based Multiple Testing", 1993). So the
error rate is that of the whole comparison, however many places it has, and places that move together, as the stages of
a bucket do, cost no more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.bench.recording import Rounds

RESAMPLES = 2000
SEED = 20261130

TRIMMED = 0.2
"""Share of the rounds left out at either end; 0.2 is the usual choice for trimmed means."""

RESOLUTION = 0.001
"""Relative; what no repetition makes better known, for clocks and medians of few samples are no finer than that."""

LEAST_DRAWN_ERROR = 0.3
"""Of the standard error, that one of a draw has at least: times that a coarse clock makes equal draw errors of zero."""

LEAST_WIDTH = 2.0
"""Standard errors to either side that an interval has at least, also where no round differs from another."""

Floats: TypeAlias = NDArray[np.float64]

MAX_LOG = 700.0
"""Of a ratio: e to this is near what a float holds. An interval that wide says nothing anyway."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Times of one place before and now.

    Attributes:
        was: at least one round.
        now: likewise.
        is_paired: whether round i of both was measured in turns; they have as many rounds then.
    """

    was: Rounds
    now: Rounds
    is_paired: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time now over time before; `low` and `high` are None where nothing tells how much the times vary."""

    value: float
    low: float | None
    high: float | None


class _Draws:
    """The rounds drawn for each number of rounds: the same ones for all places, so that they move together."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, int, str], NDArray[np.int64]] = {}

    def of(self, rounds: int, count: int, side: str) -> NDArray[np.int64]:
        """Indexes of shape [RESAMPLES, count] below `rounds`."""
        key = (rounds, count, side)
        if key not in self._by_key:
            rng = np.random.default_rng([SEED, rounds, count, *side.encode()])
            self._by_key[key] = rng.integers(0, rounds, (RESAMPLES, count))
        return self._by_key[key]


def ratios(pairs: Sequence[Pair], error_rate: float) -> tuple[Ratio, ...]:
    """The ratio of every pair, with intervals that all hold together with probability 1 - `error_rate`.

    Args:
        pairs: the places.
        error_rate: chance that an interval of any of them misses the truth.
    """
    draws = _Draws()
    estimates = [_estimate(pair, draws) for pair in pairs]
    deviations = [np.abs(deviation) for _, _, deviation in estimates if deviation is not None]
    if not deviations:
        return tuple(Ratio(float(np.exp(value)), None, None) for value, _, _ in estimates)
    width = max(LEAST_WIDTH, float(np.quantile(np.max(deviations, axis=0), 1.0 - error_rate)))
    return tuple(
        Ratio(float(np.exp(value)), *_ends(value, width * error if deviation is not None else None))
        for value, error, deviation in estimates
    )


def _ends(value: float, half: float | None) -> tuple[float | None, float | None]:
    if half is None:
        return None, None
    low, high = np.exp(np.clip((value - half, value + half), -MAX_LOG, MAX_LOG)).tolist()
    return low, high


def _estimate(pair: Pair, draws: _Draws) -> tuple[float, float, Floats | None]:
    """Log ratio, its standard error, and the draws' deviations in theirs; None if nothing tells how much it varies."""
    was, now = _log_medians(pair.was), _log_medians(pair.now)
    if len(was) == len(now) == 1:
        return float(now[0] - was[0]), 0.0, None
    if pair.is_paired:
        differences = now - was
        found = _summary(differences)
        drawn = _summary(differences[draws.of(len(differences), len(differences), "both")])
    else:
        found = _difference(was, now)
        drawn = _difference(_drawn(was, now, draws, "was"), _drawn(now, was, draws, "now"))
    error = _standard_error(found.variance)
    # Each draw's deviation is measured in its own standard error.
    drawn_error = np.maximum(_standard_error(drawn.variance), LEAST_DRAWN_ERROR * error)
    return float(found.centre), float(error), (drawn.centre - found.centre) / drawn_error


@dataclass(frozen=True, slots=True)
class _Summary:
    """Of rounds along the last axis: their trimmed mean, and its variance."""

    centre: Floats
    variance: Floats


def _log_medians(rounds: Rounds) -> Floats:
    return np.log(np.asarray([np.median(samples) for samples in rounds], dtype=np.float64))


def _drawn(side: Floats, other: Floats, draws: _Draws, name: str) -> Floats:
    """Rounds of a side drawn again, [RESAMPLES, rounds]; of a single round it and a deviation of the other side."""
    if len(side) > 1:
        drawn = side[draws.of(len(side), len(side), name)]
    else:
        drawn = side[0] + (other - _summary(other).centre)[draws.of(len(other), 1, name)]
    return drawn


def _difference(was: Floats, now: Floats) -> _Summary:
    """Of two sides measured apart. A side of one round is taken to vary as much as a round of the other does."""
    if was.shape[-1] > 1 and now.shape[-1] > 1:
        before, after = _summary(was), _summary(now)
        return _Summary(after.centre - before.centre, before.variance + after.variance)
    several, one, sign = (was, now, -1.0) if was.shape[-1] > 1 else (now, was, 1.0)
    known = _summary(several)
    return _Summary(sign * (known.centre - one[..., 0]), known.variance * (1 + several.shape[-1]))


def _summary(values: Floats) -> _Summary:
    """Of two rounds at least; the variance is that of the winsorized values, by Yuen."""
    rounds = values.shape[-1]
    cut = int(TRIMMED * rounds)
    kept, ordered = rounds - 2 * cut, np.sort(values, axis=-1)
    centre: Floats = ordered[..., cut : rounds - cut].mean(axis=-1)
    ordered[..., :cut] = ordered[..., cut, None]
    ordered[..., rounds - cut :] = ordered[..., rounds - cut - 1, None]
    variance: Floats = ordered.var(axis=-1, ddof=1) * (rounds - 1) / (kept * (kept - 1))
    return _Summary(centre, variance)


def _standard_error(variance: Floats) -> Floats:
    error: Floats = np.sqrt(variance + RESOLUTION**2)
    return error

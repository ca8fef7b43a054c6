"""Decides which places got slower: a pure function of two recordings.

A place is slower where three things hold: its interval lies wholly above 1 (it is no noise), it takes at least
`min_slowdown` more than before (it is no trifle of its own), and what was added is at least 1 % of the batch (it is no
trifle of the whole). Faster is the same the other way round. Everything else is `same`: not shown to differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from service.bench.bootstrap import Pair, Ratio, ratios
from service.bench.recording import BATCH, Place, PlaceKind, Recording, Rounds

MATERIAL = 0.01
"""Share of the batch that a place must have gained or lost."""


class Verdict(Enum):
    """What became of a place."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNKNOWN = "unknown"
    """There is one value on either side: nothing tells how much it varies."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts.

    Attributes:
        min_slowdown: share by which a place must be slower; positive.
        error_rate: chance that the whole comparison calls anything different that is not.
    """

    min_slowdown: float
    error_rate: float = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """One place in both recordings; the times are medians, in nanoseconds per batch."""

    place: Place
    was_ns: float
    now_ns: float
    ratio: Ratio
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """All places that both recordings have, in the order of the present one; and those that only one has."""

    changes: tuple[Change, ...]
    gone: tuple[Place, ...]
    new: tuple[Place, ...]

    @property
    def slower(self) -> tuple[Change, ...]:
        """What fails the gate, the worst first."""
        return self.of(Verdict.SLOWER)[::-1]

    def of(self, verdict: Verdict) -> tuple[Change, ...]:
        """The changes with that verdict, by their ratio."""
        found = [change for change in self.changes if change.verdict is verdict]
        return tuple(sorted(found, key=lambda change: change.ratio.value))


def compare(was: Recording, now: Recording, tolerance: Tolerance, *, is_interleaved: bool = False) -> Comparison:
    """Compares two recordings place by place; what belongs to no bucket is no part of the model.

    Args:
        was: the baseline.
        now: what is judged.
        tolerance: what counts.
        is_interleaved: whether rounds of both were measured in turns.
    """
    places = [place for place in now.series if place in was.series and place.bucket]
    found = ratios(
        [Pair(was.series[place], now.series[place], is_interleaved) for place in places], tolerance.error_rate
    )
    wholes_ns = batch_times(was.series)
    changes = tuple(
        _change(place, (median_ns(was.series[place]), median_ns(now.series[place])), ratio, tolerance, wholes_ns)
        for place, ratio in zip(places, found, strict=True)
    )
    return Comparison(
        changes,
        gone=tuple(place for place in was.series if place not in now.series and place.bucket),
        new=tuple(place for place in now.series if place not in was.series and place.bucket),
    )


def _change(
    place: Place, times_ns: tuple[float, float], ratio: Ratio, tolerance: Tolerance, wholes_ns: Mapping[str, float]
) -> Change:
    was_ns, now_ns = times_ns
    least_ns = MATERIAL * wholes_ns.get(place.bucket, 0.0)
    return Change(place, was_ns, now_ns, ratio, judged(ratio, was_ns, least_ns, tolerance))


def judged(ratio: Ratio, was_ns: float, least_ns: float, tolerance: Tolerance) -> Verdict:
    """The verdict on one place.

    Args:
        ratio: time now over time before.
        was_ns: time before.
        least_ns: what must have been added or saved at least.
        tolerance: what counts.
    """
    if ratio.low is None or ratio.high is None:
        return Verdict.UNKNOWN
    if abs(ratio.value - 1.0) * was_ns < least_ns:
        return Verdict.SAME
    limit = 1.0 + tolerance.min_slowdown
    if ratio.low > 1.0 and ratio.value >= limit:
        return Verdict.SLOWER
    if ratio.high < 1.0 and ratio.value <= 1.0 / limit:
        return Verdict.FASTER
    return Verdict.SAME


def median_ns(rounds: Rounds) -> float:
    """Median of the rounds' medians."""
    return float(np.median([np.median(samples) for samples in rounds]))


def batch_times(series: Mapping[Place, Rounds]) -> dict[str, float]:
    """What a whole batch takes, by bucket: the stage `batch`, or without it all layers together."""
    wholes_ns: dict[str, float] = {}
    for place, rounds in series.items():
        if place.kind is PlaceKind.LAYER:
            wholes_ns[place.bucket] = wholes_ns.get(place.bucket, 0.0) + median_ns(rounds)
    return wholes_ns | {place.bucket: median_ns(rounds) for place, rounds in series.items() if place.name == BATCH}

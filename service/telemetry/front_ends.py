"""Event loops of front ends that are processes of their own: what each worked, and how late it ran.

Promises: a front end that is started again is another one, so that nothing counted ever falls; one that is gone is
forgotten. On the event loop of the engine; what `moments` gives is frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.telemetry.histogram import Histograms
from service.telemetry.metrics import LATENCY_BOUNDS_NS


@dataclass(frozen=True, slots=True, eq=False)
class FrontEndMoment:
    """One front end up to a moment.

    Attributes:
        life: tells it from all others, also from those that had its place before.
        loop_cpu_ns: CPU time of its event loop's thread.
        loop_lag: lateness of that loop's timer, in nanoseconds.
    """

    life: int
    loop_cpu_ns: int
    loop_lag: Histograms


class FrontEnds:
    """The front ends that are connected now."""

    def __init__(self) -> None:
        self._moments: dict[int, FrontEndMoment] = {}
        self._lives = 0

    def begin(self) -> int:
        """A front end has come; returns its life."""
        self._lives += 1
        self._moments[self._lives] = FrontEndMoment(self._lives, 0, Histograms.empty(LATENCY_BOUNDS_NS))
        return self._lives

    def count(self, life: int, loop_cpu_ns: int, loop_lags_ns: Sequence[int]) -> None:
        """Adds what a front end counted since the last time; nothing for one that has ended.

        Args:
            life: as `begin` gave it.
            loop_cpu_ns: CPU time of its event loop's thread since then.
            loop_lags_ns: samples of its loop's lateness since then.
        """
        before = self._moments.get(life)
        if before is None:
            return
        lags = np.asarray(loop_lags_ns, np.int64).reshape(-1, 1)
        self._moments[life] = replace(
            before, loop_cpu_ns=before.loop_cpu_ns + loop_cpu_ns, loop_lag=before.loop_lag.plus(lags)
        )

    def end(self, life: int) -> None:
        """A front end is gone; idempotent."""
        self._moments.pop(life, None)

    def moments(self) -> tuple[FrontEndMoment, ...]:
        """Each as it is now, in the order in which they came."""
        return tuple(self._moments.values())

"""Front ends that are processes of their own: what the event loop of each worked, and how late it ran.

Promises: a front end that is started again is another one, so that nothing counted ever falls; one that is gone is
forgotten, but for how often it was started again. Changed on the event loop of the engine, asked on any thread; what
`moments` gives is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.telemetry.histogram import Histograms
from service.telemetry.metrics import LATENCY_BOUNDS_NS

ENGINE = "engine"
"""Name of the process that runs the models, where front ends are processes of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class FrontEndMoment:
    """One front end up to a moment.

    Attributes:
        life: tells it from all others, also from those that had its place before.
        index: its place among the front ends, from 0.
        loop_cpu_ns: CPU time of its event loop's thread.
        loop_lag: lateness of that loop's timer, in nanoseconds.
        held_bytes: shared memory that its requests held when it told last.
    """

    life: int
    index: int
    loop_cpu_ns: int
    loop_lag: Histograms
    held_bytes: int


class FrontEnds:
    """The front ends that are connected now."""

    def __init__(self) -> None:
        self._moments: dict[int, FrontEndMoment] = {}
        self._lives = 0
        self._restarts: dict[str, int] = {}

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often each process was started again, as far as this one was told; empty where one process is all."""
        return self._restarts.copy()

    def started(self, process: str, restarts: int) -> None:
        """A process of the server runs, and was started again so often before."""
        self._restarts[process] = restarts

    def begin(self, index: int, *, restarts: int) -> int:
        """A front end has come; returns its life.

        Args:
            index: its place among the front ends, from 0.
            restarts: how often that place was filled again.
        """
        self.started(process_name(index), restarts)
        self._lives += 1
        self._moments[self._lives] = FrontEndMoment(self._lives, index, 0, Histograms.empty(LATENCY_BOUNDS_NS), 0)
        return self._lives

    def count(self, life: int, loop_cpu_ns: int, loop_lags_ns: Sequence[int], *, held_bytes: int) -> None:
        """Adds what a front end counted since the last time; nothing for one that has ended.

        Args:
            life: as `begin` gave it.
            loop_cpu_ns: CPU time of its event loop's thread since then.
            loop_lags_ns: samples of its loop's lateness since then.
            held_bytes: shared memory that its requests hold now.
        """
        before = self._moments.get(life)
        if before is None:
            return
        lags = np.asarray(loop_lags_ns, np.int64).reshape(-1, 1)
        self._moments[life] = replace(
            before,
            loop_cpu_ns=before.loop_cpu_ns + loop_cpu_ns,
            loop_lag=before.loop_lag.plus(lags),
            held_bytes=held_bytes,
        )

    def end(self, life: int) -> None:
        """A front end is gone; idempotent."""
        self._moments.pop(life, None)

    def moments(self) -> tuple[FrontEndMoment, ...]:
        """Each as it is now, in the order in which they came."""
        return tuple(self._moments.values())


def process_name(index: int) -> str:
    """The name of a front end's process, as labels have it."""
    return f"front_end_{index}"

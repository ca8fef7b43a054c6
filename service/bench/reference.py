"""A fixed piece of work, timed beside the model: it tells whether the machine is as fast now as it was then.

A baseline in a file was measured at another time. If the reference takes longer than it did, so does everything else,
and what is slower then need not be the model. The reference is a product of matrices on all cores of the process: it
feels slower clocks, busy neighbours and a smaller quota, as a model on the CPU does. Of a GPU it tells nothing.
"""

from __future__ import annotations

import time

import numpy as np

from service.bench.bootstrap import Pair, Ratio, ratios
from service.bench.compare import Tolerance, Verdict, judged
from service.bench.recording import Place, PlaceKind, Recording
from service.requests import Clock

REFERENCE = Place("", PlaceKind.STAGE, "reference")
SIDE = 256
SAMPLES = 3


class Reference:
    """The work and its times, a round at a time; used by one thread.

    Args:
        clock: monotonic nanoseconds.
    """

    def __init__(self, clock: Clock = time.monotonic_ns) -> None:
        self._clock = clock
        self._matrix = np.ones((SIDE, SIDE), np.float32)
        self._product = np.empty_like(self._matrix)
        self.rounds: list[tuple[float, ...]] = []

    def run(self) -> None:
        """Times one round, after once unmeasured: what ran before has left the caches and threads as it liked."""
        self._time()
        self.rounds.append(tuple(self._time() for _ in range(SAMPLES)))

    def _time(self) -> float:
        from_ns = self._clock()
        np.matmul(self._matrix, self._matrix, out=self._product)
        return float(max(1, self._clock() - from_ns))


def machine_ratio(was: Recording, now: Recording, error_rate: float) -> Ratio | None:
    """The reference's time now over its time then; None where one of them did not record it."""
    if REFERENCE not in was.series or REFERENCE not in now.series:
        return None
    (ratio,) = ratios([Pair(was.series[REFERENCE], now.series[REFERENCE])], error_rate)
    return ratio


def is_machine_slower(ratio: Ratio | None, tolerance: Tolerance) -> bool:
    """Whether the machine itself got slower by so much that it would fail a model."""
    return ratio is not None and judged(ratio, 1.0, 0.0, tolerance) is Verdict.SLOWER

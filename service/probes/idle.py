"""P12: a batch after a pause, over the same batch right after another: whether clocks fall while the device is idle."""

from __future__ import annotations

from contextlib import closing
from types import MappingProxyType

from service.probes.bench import Bench, Results, Rounds
from service.probes.intervals import median_ratio
from service.runtime.probe import Probe
from service.telemetry.snapshot_probes import ProbeFigures

IDLE_S = (0.001, 0.01, 0.1, 1.0)
IDLE_ROUNDS = 7


def idle(bench: Bench) -> Rounds:
    """The busiest bucket, launched once after each pause, and once after none.

    Under traffic the device is not idle in between, and the factors say what that is worth: near 1.

    Raises:
        NotHere: there is no device.
        ServiceError: the bucket cannot be run beside the lanes.
    """
    after_ns: dict[float, list[float]] = {idle_s: [] for idle_s in IDLE_S}
    steady_ns: dict[float, list[float]] = {idle_s: [] for idle_s in IDLE_S}
    with closing(bench.probe(bench.buckets[0])) as probe:
        for number in range(IDLE_ROUNDS * len(IDLE_S)):
            if not (yield):
                break
            idle_s = IDLE_S[number % len(IDLE_S)]
            bench.tools.rest(idle_s)
            after_ns[idle_s].append(_once_ns(probe))
            steady_ns[idle_s].append(_once_ns(probe))
    ratios = {idle_s: median_ratio(after_ns[idle_s], steady_ns[idle_s]) for idle_s in IDLE_S}
    return Results(
        ProbeFigures(
            idle_factors=MappingProxyType({idle_s: ratio for idle_s, ratio in ratios.items() if ratio is not None})
        )
    )


def _once_ns(probe: Probe) -> float:
    return max(1.0, (probe.replay(1) or probe.eager(1)).device_ns)

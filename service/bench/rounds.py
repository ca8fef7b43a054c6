"""Measures one model, or two in turns, in rounds: every round visits every bucket of every side once.

Sides are visited in alternating order (A B, B A, ...), so that neither profits from coming second, and what drifts
reaches both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TypeAlias

from service.bench.drive import DrivenLanes, DriveResult
from service.bench.measure import Trial, full_batch, in_arena
from service.bench.recording import BATCH, LEAST_NS, STEP, Place, PlaceKind, Rounds
from service.buckets import Bucket
from service.requests import Batch
from service.runtime.protocol import Backend, Lane

MOST_SAMPLES = 100
"""Per place and round that are kept, evenly spaced: more tell a median little, and make files large."""


Visits: TypeAlias = Mapping[Bucket, tuple[DriveResult, ...]]
"""What lanes did in each bucket, round by round."""


class _Side:
    """One model with lanes warm in all the buckets, and what was measured of it."""

    def __init__(self, backend: Backend, buckets: Sequence[Bucket], trial: Trial, stack: ExitStack) -> None:
        (count,) = trial.lane_counts
        # Memory that the device reads by itself must outlive the lanes.
        self._batches = {bucket: _batches(backend, bucket, trial, stack) for bucket in buckets}
        self._lanes = stack.enter_context(closing(DrivenLanes(backend, count)))
        self.results: dict[Bucket, list[DriveResult]] = {bucket: [] for bucket in buckets}

    def start(self) -> None:
        def warm_up(lane: Lane) -> None:
            for bucket in self._batches:
                lane.warm_up(bucket)

        self._lanes.start(warm_up)

    def visit(self, bucket: Bucket, duration_s: float) -> None:
        self.results[bucket].append(self._lanes.drive(self._batches[bucket], duration_s))


def visit(
    backends: Sequence[Backend],
    buckets: Sequence[Bucket],
    trial: Trial,
    rounds: int,
    before_round: Callable[[], None],
) -> tuple[Visits, ...]:
    """Drives the lanes of all `backends` in turns; blocking. `trial.duration_s` is for a bucket's rounds together.

    Args:
        backends: the opened models, closed by whoever opened them; each knows all of `buckets`.
        buckets: which to visit.
        trial: how; of one count of lanes.
        rounds: visits to each bucket.
        before_round: called before each of them, while the lanes rest.

    Returns:
        Of each backend what its lanes did.

    Raises:
        ServiceError: a model failed in a bucket.
    """
    with ExitStack() as stack:
        sides = [_Side(backend, buckets, trial, stack) for backend in backends]
        for side in sides:
            side.start()
        for number in range(rounds):
            before_round()
            for bucket in buckets:
                for side in sides if number % 2 == 0 else reversed(sides):
                    side.visit(bucket, trial.duration_s / rounds)
    return tuple({bucket: tuple(results) for bucket, results in side.results.items()} for side in sides)


def to_series(visits: Visits) -> dict[Place, Rounds]:
    """The stages' times, bucket by bucket."""
    series: dict[Place, list[tuple[float, ...]]] = {}
    for bucket, results in visits.items():
        for result in results:
            for name, samples_ns in stage_samples(result).items():
                series.setdefault(Place(bucket.label, PlaceKind.STAGE, name), []).append(samples_ns)
    return {place: tuple(rounds) for place, rounds in series.items()}


def stage_samples(result: DriveResult) -> dict[str, tuple[float, ...]]:
    """Nanoseconds per batch of each stage in a lane, thinned; `step` has one value, the inverse of the throughput."""
    stages = {
        "enqueue": list(result.enqueues_ns),
        "h2d": [timings.copied_in - timings.started for timings in result.timings],
        "compute": [timings.computed - timings.copied_in for timings in result.timings],
        "d2h": [timings.copied_out - timings.computed for timings in result.timings],
        BATCH: [timings.copied_out - timings.started for timings in result.timings],
    }
    samples = {name: thinned(durations_ns) for name, durations_ns in stages.items() if durations_ns}
    return {**samples, STEP: (1e9 / result.batches_per_s,)}


def thinned(durations_ns: Sequence[float]) -> tuple[float, ...]:
    """At most `MOST_SAMPLES` of them, evenly spaced in time, none below what the clock can tell."""
    stride = -(-len(durations_ns) // MOST_SAMPLES)
    return tuple(max(LEAST_NS, float(duration_ns)) for duration_ns in durations_ns[::stride])


def _batches(backend: Backend, bucket: Bucket, trial: Trial, stack: ExitStack) -> tuple[Batch, ...]:
    batches = tuple(full_batch(backend, bucket, trial.rows_per_request) for _ in range(2 * backend.lane_depth))
    if not trial.is_registered:
        return batches
    placed, host_arena = in_arena(batches)
    stack.enter_context(backend.register(host_arena))
    return placed

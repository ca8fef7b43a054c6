"""Measures buckets of one model: the ceiling by a probe, then lanes, then the ceiling again, so that drift shows."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import numpy as np

from service.bench.drive import DrivenLanes, DriveResult
from service.buckets import Bucket
from service.requests import Batch
from service.runtime.probe import LaunchTimes
from service.runtime.protocol import Backend
from service.runtime.synthetic import split_request, synthetic_batch
from service.tensors import HostArray

PROBE_S = 0.25
"""Device time that each figure of a probe is taken over."""

ARENA_ALIGNMENT_BYTES = 256

MIN_LAUNCHES = 20
MAX_LAUNCHES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How buckets are measured.

    Attributes:
        lane_counts: how many lanes to try, one count after another.
        duration_s: for each of them.
        rows_per_request: how a batch is cut into requests; None makes it one, or of media as many as they need.
        is_registered: whether requests lie in memory that the device reads by itself, as a front end's arena does;
            else in ordinary memory, as the bodies of HTTP requests do.
    """

    lane_counts: tuple[int, ...]
    duration_s: float
    rows_per_request: int | None = None
    is_registered: bool = False


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the device alone does with one bucket; a `None` is a launch that the device does not offer.

    Attributes:
        replay: the graph, the mean of before and after the lanes ran.
        eager: an enqueue without it.
        h2d: the inputs, from pinned memory.
        d2h: the outputs, to pinned memory.
    """

    replay: LaunchTimes | None
    eager: LaunchTimes
    h2d: LaunchTimes
    d2h: LaunchTimes

    @property
    def batch_ns(self) -> float:
        """The least time per batch: the graph's, or without one the enqueue's; copies are hidden behind it."""
        return (self.replay or self.eager).device_ns


@dataclass(frozen=True, slots=True)
class LanesFigure:
    """What some lanes together do with one bucket, host to host.

    Attributes:
        lanes: how many.
        rows_per_s: throughput.
        ceiling_share: of what one context alone could do on the device; several lanes may pass 1. None on the CPU.
        enqueue_us: median time of handing a batch to the device: gathering what must be gathered, and launching.
        host_us: of one core per batch, whatever the lane's thread did.
        p50_ms: from a lane's taking a batch to its results, with `lane_depth` batches in the lane.
        p99_ms: likewise.
    """

    lanes: int
    rows_per_s: float
    ceiling_share: float | None
    enqueue_us: float
    host_us: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class BucketFigures:
    """One bucket's figures; `ceiling` is None where there is no device."""

    bucket: Bucket
    ceiling: Ceiling | None
    lanes: tuple[LanesFigure, ...]


def measure(backend: Backend, bucket: Bucket, trial: Trial) -> BucketFigures:
    """Measures one bucket, full of rows, with every count of lanes; blocking.

    Args:
        backend: the opened model.
        bucket: a known one.
        trial: how.

    Raises:
        ServiceError: the model failed in this bucket.
    """
    before = _ceiling(backend, bucket)
    batches = tuple(full_batch(backend, bucket, trial.rows_per_request) for _ in range(2 * backend.lane_depth))
    with ExitStack() as stack:
        if trial.is_registered:
            batches, host_arena = in_arena(batches)
            stack.enter_context(backend.register(host_arena))
        results = [(count, _driven(backend, bucket, count, batches, trial.duration_s)) for count in trial.lane_counts]
    ceiling = _mean(before, _ceiling(backend, bucket))
    return BucketFigures(
        bucket,
        ceiling,
        tuple(
            LanesFigure(
                lanes=count,
                rows_per_s=result.batches_per_s * bucket.padded_size,
                ceiling_share=None if ceiling is None else result.batches_per_s * ceiling.batch_ns / 1e9,
                enqueue_us=_percentile(result.enqueues_ns, 0.5) / 1e3,
                host_us=result.host_us_per_batch,
                p50_ms=_percentile(result.durations_ns, 0.5) / 1e6,
                p99_ms=_percentile(result.durations_ns, 0.99) / 1e6,
            )
            for count, result in results
        ),
    )


def _driven(backend: Backend, bucket: Bucket, count: int, batches: Sequence[Batch], duration_s: float) -> DriveResult:
    with closing(DrivenLanes(backend, count)) as lanes:
        lanes.start(lambda lane: lane.warm_up(bucket))
        return lanes.drive(batches, duration_s)


def full_batch(backend: Backend, bucket: Bucket, rows_per_request: int | None) -> Batch:
    """What fills the bucket, in requests of that many rows; None makes it one, or of media as many as they need."""
    whole = synthetic_batch(backend.spec, bucket)
    return whole if rows_per_request is None else split(whole, rows_per_request)


def _ceiling(backend: Backend, bucket: Bucket) -> Ceiling | None:
    probe = backend.create_probe(bucket)
    if probe is None:
        return None
    with closing(probe):
        rough = probe.replay(MIN_LAUNCHES) or probe.eager(MIN_LAUNCHES)
        launches = min(MAX_LAUNCHES, max(MIN_LAUNCHES, math.ceil(PROBE_S * 1e9 / max(1.0, rough.device_ns))))
        return Ceiling(
            replay=probe.replay(launches),
            eager=probe.eager(launches),
            h2d=probe.h2d(launches),
            d2h=probe.d2h(launches),
        )


def in_arena(batches: Sequence[Batch]) -> tuple[tuple[Batch, ...], HostArray]:
    """The same requests with all inputs in one piece of memory of whole pages, and that memory."""
    inputs = [values for batch in batches for request in batch.requests for values in request.inputs]
    offsets = [0, *itertools.accumulate(-(-values.nbytes // ARENA_ALIGNMENT_BYTES) for values in inputs)]
    host_arena = np.frombuffer(mmap.mmap(-1, max(1, offsets[-1] * ARENA_ALIGNMENT_BYTES)), np.uint8)
    placed = map(_placed, inputs, offsets, itertools.repeat(host_arena))
    return tuple(
        replace(
            batch,
            requests=tuple(
                replace(request, inputs=tuple(next(placed) for _ in request.inputs)) for request in batch.requests
            ),
        )
        for batch in batches
    ), host_arena


def _placed(values: HostArray, offset: int, host_arena: HostArray) -> HostArray:
    """`values` in the arena, at a multiple of its alignment."""
    first = offset * ARENA_ALIGNMENT_BYTES
    copy: HostArray = host_arena[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def split(batch: Batch, rows: int) -> Batch:
    """The same rows as requests of at most `rows` rows each."""
    return replace(batch, requests=tuple(part for whole in batch.requests for part in split_request(whole, rows)))


def _mean(before: Ceiling | None, after: Ceiling | None) -> Ceiling | None:
    if before is None or after is None:
        return None
    replay = before.replay and after.replay and _mean_times(before.replay, after.replay)
    return Ceiling(
        replay=replay,
        eager=_mean_times(before.eager, after.eager),
        h2d=_mean_times(before.h2d, after.h2d),
        d2h=_mean_times(before.d2h, after.d2h),
    )


def _mean_times(one: LaunchTimes, other: LaunchTimes) -> LaunchTimes:
    return LaunchTimes((one.device_ns + other.device_ns) / 2, (one.host_ns + other.host_ns) / 2)


def _percentile(durations_ns: Sequence[int], share: float) -> float:
    return float(np.quantile(np.asarray(durations_ns), share))

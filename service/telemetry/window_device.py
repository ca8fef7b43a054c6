"""Buckets, lanes and GPU of a window, from what was counted at its ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from service.buckets import Bucket
from service.telemetry.device_totals import Direction
from service.telemetry.figures import ModelFigures
from service.telemetry.gpu_figures import ClockEvent, GpuFigures, Reading
from service.telemetry.history import ModelMoment, Span
from service.telemetry.idle_gaps import GAP_CAUSES
from service.telemetry.metrics import LANE_STAGES
from service.telemetry.snapshot_device import BucketUse, DeviceFigures, GapCause, GpuWindow
from service.telemetry.snapshot_load import Durations
from service.telemetry.totals import BATCH_FACTS
from service.telemetry.window_load import ends
from service.units import NS_PER_S

TENSORRT = "tensorrt"

_FACT = {name: column for column, name in enumerate(BATCH_FACTS)}
_STAGE = {name: column for column, name in enumerate(LANE_STAGES)}


def is_on_device(span: Span) -> bool:
    """Whether the model runs on a GPU."""
    return ends(span)[1].source.facts.backend == TENSORRT


def bucket_uses(span: Span) -> tuple[BucketUse, ...]:
    """The buckets that ran, in the order in which they were first met.

    Those beyond the first `MAX_BUCKET_LABELS` of a model are counted together and left out here. Bytes are counted for
    the lanes as a whole and shared out by what the buckets' batches hold with padding.
    """
    first, last = (moment.figures for moment in ends(span))
    batches = _between(first.batches.bucket_dispatches, last.batches.bucket_dispatches).tolist()
    ran = [
        (index, bucket)
        for index, bucket in enumerate(last.buckets[: len(batches)])
        if bucket is not None and batches[index]
    ]
    volume = max(1, sum(batches[index] * bucket.volume for index, bucket in ran))
    copied, misses, profiles = _copied(first, last), _miss_reasons(last), ends(span)[1].source.profiles
    uses = []
    for index, bucket in ran:
        share = batches[index] * bucket.volume / volume
        uses.append(
            replace(
                _lane_part(first, last, index, bucket),
                h2d_bytes=round(copied[Direction.H2D] * share) if copied else None,
                d2h_bytes=round(copied[Direction.D2H] * share) if copied else None,
                replays=last.device.replays.get(bucket, 0) - first.device.replays.get(bucket, 0),
                eager_runs=last.device.eager_runs.get(bucket, 0) - first.device.eager_runs.get(bucket, 0),
                miss_reason=misses.get(bucket),
                profile=profiles.get(bucket),
            )
        )
    return tuple(uses)


def _lane_part(first: ModelFigures, last: ModelFigures, index: int, bucket: Bucket) -> BucketUse:
    """What batches tell of a bucket by their rows and times."""
    before, after = first.batches, last.batches
    count = int(_between(before.bucket_dispatches, after.bucket_dispatches)[index])
    facts = _between(before.bucket_facts, after.bucket_facts)[index]
    stages_ns = _between(before.bucket_stages_ns, after.bucket_stages_ns)[index]
    return BucketUse(
        bucket=bucket,
        batches=count,
        rows=int(_between(before.bucket_rows, after.bucket_rows)[index]),
        useful_volume=int(facts[_FACT["useful_volume"]]),
        compute=_durations(count, stages_ns[_STAGE["compute"]]),
        h2d=_timed(facts, "h2d"),
        d2h=_timed(facts, "d2h"),
        enqueue=_timed(facts, "enqueue"),
        cold=_durations(int(facts[_FACT["is_cold"]]), _between(before.bucket_cold_ns, after.bucket_cold_ns)[index]),
    )


def timed_ns(span: Span, name: str) -> int:
    """Sum over all batches of a duration by the device's own clock, one of `BATCH_FACTS`."""
    first, last = (moment.figures.batches.bucket_facts for moment in ends(span))
    return int(_between(first, last)[:, _FACT[name]].sum())


def lane_stage_ns(span: Span, name: str) -> int:
    """Sum over all batches of the time in one of `LANE_STAGES`."""
    first, last = (moment.figures.batches.bucket_stages_ns for moment in ends(span))
    return int(_between(first, last)[:, _STAGE[name]].sum())


def device_figures(span: Span) -> DeviceFigures:
    """The model's lanes.

    A lane on a GPU copies from page-locked memory alone, and no context of its buckets changes its shape or profile
    (`runtime/trt/lane.py`): these are zero by its making. It allocates for outputs whose size the data decide alone.
    """
    first, last = ends(span)
    source = last.source
    if not is_on_device(span):
        return DeviceFigures(lanes=source.lanes, lane_depth=source.lane_depth, lanes_busy_mean=_lanes_together(span))
    return DeviceFigures(
        lanes=source.lanes,
        lane_depth=source.lane_depth,
        lanes_busy_mean=_lanes_together(span),
        pageable_copies=0,
        pageable_bytes=0,
        idle_with_backlog_s=_gaps_s(first, last),
        hot_allocations=last.figures.device.allocations - first.figures.device.allocations,
        hot_allocation_s=(last.figures.device.allocation_ns - first.figures.device.allocation_ns) / NS_PER_S,
        shape_switches=0,
    )


def _gaps_s(first: ModelMoment, last: ModelMoment) -> Mapping[GapCause, float]:
    spent_ns = last.figures.batches.gaps_ns - first.figures.batches.gaps_ns
    return MappingProxyType(
        {GapCause(name): ns / NS_PER_S for name, ns in zip(GAP_CAUSES, spent_ns.tolist(), strict=True)}
    )


def _lanes_together(span: Span) -> float | None:
    """Mean number of batches that were computed side by side, while one at least was."""
    first, last = (moment.figures.batches.computing.busy_ns for moment in ends(span))
    return lane_stage_ns(span, "compute") / (last - first) if last > first else None


def gpu_window(span: Span) -> GpuWindow | None:
    """The GPU by its samples; None without one, and where models use several, since nobody tells which is whose."""
    if not is_on_device(span):
        return None
    samples = [moment.gpus[0] for moment in span.moments if len(moment.gpus) == 1]
    if not samples:
        return None
    clocks = _clock_ratios(samples)
    return GpuWindow(
        name=samples[-1].name,
        sm_clock_ratio=float(np.mean(clocks)) if clocks else None,
        sm_clock_spread=(max(clocks) - min(clocks)) / float(np.mean(clocks)) if clocks else None,
        clock_events=_clock_events(samples),
        utilization_ratio=_mean(samples, Reading.UTILIZATION_RATIO),
        sm_activity_ratio=_mean(samples, Reading.SM_ACTIVITY_RATIO),
        tensor_activity_ratio=_mean(samples, Reading.TENSOR_ACTIVITY_RATIO),
        memory_bandwidth_ratio=_mean(samples, Reading.MEMORY_BANDWIDTH_RATIO),
        other_processes=_most(samples, Reading.OTHER_PROCESSES),
    )


def _clock_ratios(samples: Sequence[GpuFigures]) -> list[float]:
    """The SMs' clock over the highest, in the samples in which a kernel ran."""
    return [
        sample.readings[Reading.SM_CLOCK_HERTZ] / sample.readings[Reading.MAX_SM_CLOCK_HERTZ]
        for sample in samples
        if sample.readings.get(Reading.UTILIZATION_RATIO, 0.0) > 0
        and Reading.SM_CLOCK_HERTZ in sample.readings
        and sample.readings.get(Reading.MAX_SM_CLOCK_HERTZ)
    ]


def _clock_events(samples: Sequence[GpuFigures]) -> Mapping[ClockEvent, float]:
    told = [sample.clock_events for sample in samples if sample.clock_events]
    return MappingProxyType(
        {event: sum(events.get(event, False) for events in told) / len(told) for event in ClockEvent} if told else {}
    )


def _mean(samples: Sequence[GpuFigures], reading: Reading) -> float | None:
    values = [sample.readings[reading] for sample in samples if reading in sample.readings]
    return float(np.mean(values)) if values else None


def _most(samples: Sequence[GpuFigures], reading: Reading) -> int | None:
    """Of a count; None where a sample lacks it, for then nobody knows."""
    values = [sample.readings.get(reading) for sample in samples]
    known = [value for value in values if value is not None]
    return int(max(known)) if len(known) == len(values) else None


def _between(before: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.int64]:
    """The difference by bucket index; buckets that came meanwhile had counted nothing before."""
    added: NDArray[np.int64] = after.copy()
    added[: len(before)] -= before
    return added


def _durations(count: int, spent_ns: int) -> Durations:
    return Durations(count, int(spent_ns) / NS_PER_S)


def _timed(facts: NDArray[np.int64], name: str) -> Durations | None:
    count = int(facts[_FACT["is_timed"]])
    return _durations(count, facts[_FACT[name]]) if count else None


def _copied(first: ModelFigures, last: ModelFigures) -> Mapping[Direction, int]:
    """Bytes copied meanwhile by direction; empty without a device."""
    return {
        direction: number - first.device.copied_bytes.get(direction, 0)
        for direction, number in last.device.copied_bytes.items()
    }


def _miss_reasons(figures: ModelFigures) -> Mapping[Bucket, str]:
    return {bucket: reason.value for reason, buckets in figures.graphs_missing.items() for bucket in buckets}

"""Requests, arrivals and queue of a window, from what was counted at its ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from service.requests import RequestFacts
from service.telemetry.activity import OccupancyMarks
from service.telemetry.histogram import Histograms
from service.telemetry.history import ModelMoment, Span
from service.telemetry.metrics import STAGES
from service.telemetry.snapshot_load import Arrival, ArrivalFigures, Durations, QueueFigures, RequestFigures, Stage
from service.telemetry.snapshot_probes import Interval
from service.telemetry.totals import RequestTotals
from service.units import NS_PER_S

MIN_SLOPE_POINTS = 5
"""Seconds below which no trend of the queue is told."""

_CONFIDENCE = 1.96
"""Standard errors on either side of a 95 % interval."""

_RECORDED = {
    Stage.READ: "read",
    Stage.PARSE: "parse",
    Stage.PREPARE: "prepare",
    Stage.DISPATCH: "dispatch",
    Stage.COMPUTE: "compute",
    Stage.D2H: "d2h",
    Stage.COMPLETE: "complete",
    Stage.RENDER: "render",
    Stage.SEND: "send",
}
"""The stages that are recorded as they are; the others are made of two of them and the waits within."""


def ends(span: Span) -> tuple[ModelMoment, ModelMoment]:
    """The model at the beginning of a window and at its end."""
    return span.first.models[span.model], span.last.models[span.model]


def request_figures(span: Span) -> RequestFigures:
    """The requests of a window; quantiles are those of `FINE_BOUNDS_NS`, interpolated."""
    first, last = ends(span)
    before, after = first.figures.requests, last.figures.requests
    count, facts = after.count - before.count, facts_between(before, after)
    fine = minus(after.fine, before.fine)
    whole_s = (after.duration_ns - before.duration_ns) / NS_PER_S
    in_flight, in_flight_std = mean_and_std(first.marks.in_flight, last.marks.in_flight, span.duration_s)
    failures = {
        reason: number - first.figures.failures.get(reason, 0)
        for reason, number in last.figures.failures.items()
        if number > first.figures.failures.get(reason, 0)
    }
    return RequestFigures(
        rows=after.rows - before.rows,
        duration=Durations(count, whole_s, quantile_s(fine, 0.5), quantile_s(fine, 0.99)),
        stages=stage_durations(before, after),
        failures=MappingProxyType(failures),
        in_flight_mean=in_flight,
        in_flight_std=in_flight_std,
        json_share=facts.is_json / count if count else None,
        body_bytes_mean=facts.body_bytes / count if count else None,
        answer_bytes_mean=facts.answer_bytes / count if count else None,
    )


def facts_between(before: RequestTotals, after: RequestTotals) -> RequestFacts:
    """The facts' sums of the requests that were answered meanwhile."""
    return RequestFacts(*(after.facts - before.facts).tolist())


def stage_durations(before: RequestTotals, after: RequestTotals) -> Mapping[Stage, Durations]:
    """Time by stage of the requests that were answered meanwhile; nothing if there was none.

    A stage has quantiles where it was recorded as it is, which says a stage of two waits only where one was nothing;
    they are interpolated in `LATENCY_BOUNDS_NS`.
    """
    count = after.count - before.count
    if not count:
        return MappingProxyType({})
    spent_ns = {stage: after.stage_ns(stage) - before.stage_ns(stage) for stage in STAGES}
    facts = facts_between(before, after)
    by_stage_ns = {stage: spent_ns[name] for stage, name in _RECORDED.items()}
    by_stage_ns[Stage.FORMATION] = facts.formation
    by_stage_ns[Stage.BACKLOG] = spent_ns["queue"] - facts.formation + facts.lane_wait
    by_stage_ns[Stage.H2D] = spent_ns["h2d"] - facts.lane_wait
    quantiles_of = dict(_RECORDED)
    if not facts.lane_wait:
        quantiles_of[Stage.H2D] = "h2d"
        if not facts.formation:
            quantiles_of[Stage.BACKLOG] = "queue"
    spread = minus(after.durations, before.durations)
    columns = {stage: STAGES.index(name) for stage, name in quantiles_of.items()}
    return MappingProxyType(
        {
            stage: Durations(count, by_stage_ns[stage] / NS_PER_S, *_median_and_p99_s(spread, columns.get(stage)))
            for stage in Stage
        }
    )


def _median_and_p99_s(histograms: Histograms, column: int | None) -> tuple[float | None, float | None]:
    if column is None:
        return None, None
    if not histograms.sums[column]:
        return 0.0, 0.0
    return quantile_s(histograms, 0.5, column), quantile_s(histograms, 0.99, column)


def minus(after: Histograms, before: Histograms) -> Histograms:
    """What was observed between two states of the same histograms."""
    sums = tuple(late - early for late, early in zip(after.sums, before.sums, strict=True))
    return Histograms(after.bounds, after.counts - before.counts, sums)


def quantile_s(histogram: Histograms, share: float, column: int = 0) -> float | None:
    """A quantile of a column, from nanoseconds to seconds, linear within its interval; None of nothing.

    Beyond the last bound it is that bound: it can be no less.
    """
    counts = histogram.counts[column]
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if not total:
        return None
    index = int(np.searchsorted(cumulative, share * total, side="left"))
    bounds = histogram.bounds
    if index >= len(bounds):
        return float(bounds[-1]) / NS_PER_S
    low = float(bounds[index - 1]) if index else 0.0
    within = (share * total - float(cumulative[index] - counts[index])) / float(counts[index])
    return (low + within * (float(bounds[index]) - low)) / NS_PER_S


def mean_and_std(before: OccupancyMarks, after: OccupancyMarks, duration_s: float) -> tuple[float, float]:
    """Mean over time of a number that was integrated, and its standard deviation."""
    duration_ns = duration_s * NS_PER_S
    mean = (after.area_ns - before.area_ns) / duration_ns
    square = (after.square_area_ns - before.square_area_ns) / duration_ns
    return max(0.0, mean), math.sqrt(max(0.0, square - mean * mean))


def queue_figures(span: Span) -> QueueFigures:
    """Mean length of the queue, and its trend over the window's seconds."""
    first, last = ends(span)
    mean, _ = mean_and_std(first.marks.waiting, last.marks.waiting, span.duration_s)
    return QueueFigures(depth_mean=mean, depth_slope_per_s=_slope(span))


def _slope(span: Span) -> Interval | None:
    """Least squares through the mean of each second; its interval takes the seconds as independent."""
    at_s, depths = [], []
    for early, late in zip(span.moments[:-1], span.moments[1:], strict=True):
        elapsed_ns = late.at_ns - early.at_ns
        if elapsed_ns > 0:
            before, after = (moment.models[span.model].marks.waiting.area_ns for moment in (early, late))
            at_s.append((early.at_ns + late.at_ns) / 2 / NS_PER_S)
            depths.append((after - before) / elapsed_ns)
    if len(at_s) < MIN_SLOPE_POINTS:
        return None
    x = np.asarray(at_s) - np.mean(at_s)
    y = np.asarray(depths) - np.mean(depths)
    slope = float((x @ y) / (x @ x))
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / (len(x) - 2) / float(x @ x))
    return Interval(slope, slope - _CONFIDENCE * error, slope + _CONFIDENCE * error)


def arrival_figures(span: Span) -> ArrivalFigures:
    """How requests arrived at the queue."""
    first, last = ends(span)
    before, after = first.marks.arrivals, last.marks.arrivals
    began_ns, ended_ns = span.first.at_ns, span.last.at_ns
    kept = [entry for entry in last.source.activity.arrivals.since(began_ns) if entry.received_ns <= ended_ns]
    return ArrivalFigures(
        rows_per_s=(after.rows - before.rows) / span.duration_s,
        gap_cv2=_dispersion(
            after.requests - before.requests, after.gaps_s - before.gaps_s, after.gaps_squared - before.gaps_squared
        ),
        log=tuple(Arrival((entry.received_ns - began_ns) / NS_PER_S, entry.rows, entry.dims) for entry in kept),
    )


def _dispersion(gaps: int, total_s: float, squares: float) -> float | None:
    if gaps < 2 or total_s <= 0:
        return None
    mean_s = total_s / gaps
    return max(0.0, squares / gaps / (mean_s * mean_s) - 1.0)

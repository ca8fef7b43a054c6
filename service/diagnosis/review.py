"""After a change: what was predicted against what was achieved. Pure.

Gains compare at comparable load alone: latencies where about as much is asked as before, throughput by the rate that
the limiter would reach. Some are otherwise by their nature: mending an overload takes load away, and mending idle
clients, or crowded cores, shows in what is answered. Predictions that hold, and those that do not, are what confidence
is earned by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from service.diagnosis.document import JsonValue, gain_to_json, number
from service.diagnosis.finding import BottleneckClass, Gain, GainMetric, Verdict, percent
from service.diagnosis.report import Report
from service.diagnosis.track_record import TrackRecord, TrackRecords

REVIEW_SCHEMA = "inferlane.review/1"

SIMILAR_LOAD = 0.10
"""Change of the offered rate up to which latencies compare."""

CLOSE = 0.25
"""Relative error of a prediction that held although the achieved gain lies outside of its interval."""

ANSWERED = (BottleneckClass.CLIENT_LIMITED, BottleneckClass.CPU_STARVED)
"""Classes whose fix leaves the limiter's demand as it is: what it gains shows in what is answered."""

MIN_GAIN = 0.03
"""Errors are relative to at least this gain: of a smaller one nothing could be told."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A confirmed finding and the gain that was promised for its fix."""

    kind: BottleneckClass
    gain: Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What must be kept of a report to review a change later.

    Attributes:
        id: the report's.
        model: the model's name.
        rows_per_s: what was answered.
        offered_rows_per_s: what was asked; answered rows where that was not recorded.
        latency_mean_s: mean time of a request.
        latency_p99_s: its 99th percentile.
        capacity_rows_per_s: what the limiter would reach.
        predictions: of the confirmed findings, in their order.
    """

    id: str
    model: str
    rows_per_s: float
    offered_rows_per_s: float
    latency_mean_s: float | None
    latency_p99_s: float | None
    capacity_rows_per_s: float | None
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One prediction and what became of it.

    Attributes:
        kind: the class.
        predicted: the gain.
        achieved: the same metric's change since; None where it cannot be compared.
        has_held: whether the achieved gain lies in the predicted interval, or near its value; None likewise.
        verdict: of the class now.
        detail: in a sentence.
    """

    kind: BottleneckClass
    predicted: Gain
    achieved: float | None
    has_held: bool | None
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """All predictions of an earlier report, held against a later one.

    Attributes:
        since: the earlier report's id.
        id: the later one's.
        load_change: relative change of the offered rate.
        is_attributable: whether exactly one of the earlier bottlenecks is gone, so that the change is its fix.
        outcomes: in the order of the earlier report.
    """

    since: str
    id: str
    load_change: float
    is_attributable: bool
    outcomes: tuple[Outcome, ...]


def baseline_of(report: Report) -> Baseline:
    """What to keep of a report."""
    return Baseline(
        id=report.id,
        model=report.snapshot.model.name,
        rows_per_s=report.snapshot.rows_per_s,
        offered_rows_per_s=_offered(report),
        latency_mean_s=report.snapshot.latency_s,
        latency_p99_s=report.snapshot.requests.duration.p99_s,
        capacity_rows_per_s=report.limiter.capacity_rows_per_s if report.limiter else None,
        predictions=tuple(Prediction(one.kind, one.gain) for one in report.confirmed if one.gain is not None),
    )


def review(baseline: Baseline, report: Report) -> Review:
    """Holds earlier predictions against a later report of the same model."""
    change = _offered(report) / baseline.offered_rows_per_s - 1.0 if baseline.offered_rows_per_s else 0.0
    outcomes = tuple(_outcome(prediction, baseline, report, change) for prediction in baseline.predictions)
    gone = [outcome for outcome in outcomes if outcome.verdict is not Verdict.CONFIRMED]
    return Review(
        since=baseline.id,
        id=report.id,
        load_change=change,
        is_attributable=report.is_valid and len(gone) == 1,
        outcomes=outcomes,
    )


def track_records(reviews: Iterable[Review]) -> TrackRecords:
    """By class how far predictions have held, over the changes that were the fix of one bottleneck alone."""
    records: dict[BottleneckClass, TrackRecord] = {}
    for outcome in (outcome for one in reviews if one.is_attributable for outcome in one.outcomes):
        if outcome.verdict is not Verdict.CONFIRMED and outcome.has_held is not None:
            before = records.get(outcome.kind, TrackRecord())
            records[outcome.kind] = TrackRecord(before.judged + 1, before.held + outcome.has_held)
    return MappingProxyType(records)


def _offered(report: Report) -> float:
    arrivals = report.snapshot.arrivals
    return arrivals.rows_per_s if arrivals else report.snapshot.rows_per_s


def _outcome(prediction: Prediction, baseline: Baseline, report: Report, change: float) -> Outcome:
    verdict = next(finding.verdict for finding in report.findings if finding.kind is prediction.kind)
    needs_equal_load = (
        prediction.gain.metric is not GainMetric.THROUGHPUT and prediction.kind is not BottleneckClass.OVERLOAD
    )
    achieved, held = None, None
    if not report.is_valid:
        detail = "the later window cannot be judged"
    elif needs_equal_load and abs(change) > SIMILAR_LOAD:
        detail = f"the load changed by {percent(change)}: latencies do not compare"
    else:
        achieved = _achieved(prediction, baseline, report)
        held = None if achieved is None else _has_held(prediction.gain, achieved)
        detail = _detail(prediction.gain, achieved, held)
    if verdict is Verdict.CONFIRMED:
        detail += "; the bottleneck is still there"
    return Outcome(
        kind=prediction.kind,
        predicted=prediction.gain,
        achieved=achieved,
        has_held=held,
        verdict=verdict,
        detail=detail,
    )


def _detail(predicted: Gain, achieved: float | None, held: bool | None) -> str:
    if achieved is None:
        return f"{predicted.metric.value} was not recorded both times"
    words = "as predicted" if held else "not as predicted"
    return f"{predicted.metric.value}: {percent(achieved)} gained, {percent(predicted.value)} predicted: {words}"


def _achieved(prediction: Prediction, baseline: Baseline, report: Report) -> float | None:
    metric = prediction.gain.metric
    if metric is GainMetric.THROUGHPUT and prediction.kind in ANSWERED:
        return report.snapshot.rows_per_s / baseline.rows_per_s - 1.0 if baseline.rows_per_s else None
    if metric is GainMetric.THROUGHPUT:
        now = report.limiter.capacity_rows_per_s if report.limiter else None
        return now / baseline.capacity_rows_per_s - 1.0 if now and baseline.capacity_rows_per_s else None
    if metric is GainMetric.LATENCY_P99:
        before_s, after_s = baseline.latency_p99_s, report.snapshot.requests.duration.p99_s
    else:
        before_s, after_s = baseline.latency_mean_s, report.snapshot.latency_s
    return 1.0 - after_s / before_s if before_s and after_s is not None else None


def _has_held(predicted: Gain, achieved: float) -> bool:
    near = abs(achieved - predicted.value) <= CLOSE * max(predicted.value, MIN_GAIN)
    return near or predicted.low <= achieved <= predicted.high


def review_to_json(one: Review) -> dict[str, JsonValue]:
    """The document of a review."""
    return {
        "schema": REVIEW_SCHEMA,
        "since": one.since,
        "id": one.id,
        "load_change": number(one.load_change),
        "attributable": one.is_attributable,
        "outcomes": [
            {
                "class": outcome.kind.value,
                "predicted": gain_to_json(outcome.predicted),
                "achieved": number(outcome.achieved),
                "held": outcome.has_held,
                "verdict": outcome.verdict.value,
                "detail": outcome.detail,
            }
            for outcome in one.outcomes
        ],
    }

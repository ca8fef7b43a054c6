"""Predictions against what came of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import BottleneckClass, Gain, GainLabel, GainMetric, Verdict
from service.diagnosis.report import Report, diagnose
from service.diagnosis.review import Baseline, Prediction, baseline_of, review, track_records
from service.telemetry.snapshot_load import Durations, Stage
from tests.doubles.faults import FAULTS, arrivals, launch_bound, saturated
from tests.doubles.snapshots import healthy, requests

Kind = BottleneckClass


def after(latency_s: float, *, rate: float = 10_000.0) -> Report:
    """A healthy server whose mean latency is this."""
    compute_s = latency_s - healthy().latency_s + 560e-6
    return diagnose(healthy(requests=requests({Stage.COMPUTE: compute_s}), arrivals=arrivals(rate)), report_id="after")


BEFORE = baseline_of(diagnose(launch_bound(), report_id="before"))


def baseline(metric: GainMetric, value: float, low: float, high: float, **changes) -> Baseline:
    prediction = Prediction(Kind.LAUNCH_BOUND, Gain(metric, value, low, high, GainLabel.MODELLED))
    return replace(BEFORE, predictions=(prediction,), **changes)


def test_what_is_kept_of_a_report():
    assert BEFORE.id == "before"
    assert BEFORE.offered_rows_per_s == 10_000.0
    assert BEFORE.latency_mean_s == pytest.approx(1.64e-3)
    assert [prediction.kind for prediction in BEFORE.predictions] == [Kind.LAUNCH_BOUND]


@pytest.mark.parametrize(
    ("latency_s", "held"),
    [
        pytest.param(1.64e-3 * (1 - 0.128), True, id="as predicted"),
        pytest.param(1.64e-3 * (1 - 0.08), True, id="within the interval"),
        pytest.param(1.64e-3 * (1 - 0.155), True, id="within a quarter"),
        pytest.param(1.64e-3 * (1 - 0.02), False, id="less"),
        pytest.param(1.64e-3 * (1 - 0.30), False, id="more"),
    ],
)
def test_latency(latency_s, held):
    one = review(BEFORE, after(latency_s))
    (outcome,) = one.outcomes
    assert outcome.achieved == pytest.approx(1 - latency_s / 1.64e-3)
    assert outcome.has_held is held
    assert outcome.verdict is Verdict.REFUTED
    assert one.is_attributable


def test_latencies_at_another_load_do_not_compare():
    one = review(BEFORE, after(1.4e-3, rate=12_000.0))
    assert one.load_change == pytest.approx(0.2)
    assert one.outcomes[0].achieved is None
    assert one.outcomes[0].has_held is None
    assert "the load changed by 20.0 %" in one.outcomes[0].detail


def test_throughput_compares_by_what_the_limiter_would_reach():
    before = baseline(GainMetric.THROUGHPUT, 0.5, 0.4, 0.6, capacity_rows_per_s=20_000.0)
    (outcome,) = review(before, diagnose(saturated(), report_id="after")).outcomes
    assert outcome.achieved == pytest.approx(30_769 / 20_000 - 1)
    assert outcome.has_held
    unknown = replace(before, capacity_rows_per_s=None)
    assert review(unknown, diagnose(saturated(), report_id="after")).outcomes[0].has_held is None


def test_the_99th_percentile():
    before = baseline(GainMetric.LATENCY_P99, 0.5, 0.4, 0.6, latency_p99_s=6e-3)
    (outcome,) = review(before, after(1.5e-3)).outcomes
    assert outcome.achieved == pytest.approx(0.5)
    nobody = healthy(requests=replace(requests(), duration=Durations(600_000, 900.0)))
    (outcome,) = review(before, diagnose(nobody, report_id="after")).outcomes
    assert outcome.detail == "latency_p99 was not recorded both times"


def test_a_window_that_cannot_be_judged_reviews_nothing():
    one = review(BEFORE, diagnose(healthy(requests=requests(count=3)), report_id="after"))
    assert not one.is_attributable
    assert one.outcomes[0].has_held is None


def test_what_is_still_there_was_not_fixed():
    one = review(BEFORE, diagnose(launch_bound(), report_id="after"))
    assert one.outcomes[0].verdict is Verdict.CONFIRMED
    assert not one.is_attributable
    assert track_records([one]) == {}


def test_confidence_is_earned_by_what_was_achieved():
    predicted = BEFORE.predictions[0].gain.value
    held, failed = (review(BEFORE, after(1.64e-3 * (1 - gained))) for gained in (predicted, 0.0))
    assert (held.outcomes[0].has_held, failed.outcomes[0].has_held) == (True, False)
    record = track_records([held, held, failed])[Kind.LAUNCH_BOUND]
    assert (record.judged, record.held) == (3, 2)
    assert track_records([]) == {}


def test_what_could_not_be_compared_or_was_not_the_fix_earns_nothing():
    elsewhere = review(BEFORE, after(1.4e-3, rate=12_000.0))
    assert elsewhere.is_attributable
    assert track_records([elsewhere]) == {}
    invalid = review(BEFORE, diagnose(healthy(requests=requests(count=3)), report_id="after"))
    assert track_records([invalid]) == {}


def test_a_report_without_bottlenecks_promises_nothing():
    one = review(baseline_of(diagnose(healthy(), report_id="before")), after(1.4e-3))
    assert one.outcomes == ()
    assert not one.is_attributable


def test_answered_rows_stand_in_where_arrivals_were_not_recorded():
    kept = baseline_of(diagnose(healthy(arrivals=None), report_id="before"))
    assert kept.offered_rows_per_s == pytest.approx(10_000.0)
    assert FAULTS[Kind.LAUNCH_BOUND] is launch_bound

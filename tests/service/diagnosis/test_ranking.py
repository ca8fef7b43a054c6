"""What counts and in which order: gain times confidence, whatever the order in which findings come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.diagnosis.finding import (
    BottleneckClass,
    Finding,
    Fix,
    Gain,
    GainLabel,
    GainMetric,
    Missing,
    Verdict,
    refuted,
    unverified,
)
from service.diagnosis.ranking import MATERIAL, rank, score, settle
from service.diagnosis.track_record import TrackRecord

Kind = BottleneckClass


def found(
    kind: Kind, value: float, label=GainLabel.MODELLED, metric=GainMetric.LATENCY_MEAN, *, low=None, high=None
) -> Finding:
    gain = Gain(metric, value, value if low is None else low, value if high is None else high, label)
    return Finding(kind=kind, verdict=Verdict.CONFIRMED, summary="s", gain=gain, fix=Fix("do"), verify="see")


def kinds(findings) -> list[Kind]:
    return [finding.kind for finding in findings]


GAINS = st.builds(
    found,
    st.sampled_from(list(Kind)),
    st.floats(0.0, 1.0),
    st.sampled_from(list(GainLabel)),
    st.sampled_from(list(GainMetric)),
)
OTHERS = st.sampled_from(list(Kind)).flatmap(
    lambda kind: st.sampled_from([refuted(kind, "no"), unverified(kind, "perhaps", missing=(Missing("what", "P1"),))])
)
FINDINGS = st.lists(st.one_of(GAINS, OTHERS), max_size=12, unique_by=lambda finding: finding.kind)


@given(findings=FINDINGS, seed=st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_of_the_rules(findings, seed):
    shuffled = list(findings)
    seed.shuffle(shuffled)
    assert rank(settle(findings), 100.0, 90.0) == rank(settle(shuffled), 100.0, 90.0)


@given(findings=FINDINGS)
def test_the_confirmed_come_first_and_the_refuted_last(findings):
    verdicts = [finding.verdict for finding in rank(settle(findings), None, None)]
    assert verdicts == sorted(verdicts, key=(Verdict.CONFIRMED, Verdict.UNVERIFIED, Verdict.REFUTED).index)
    assert len(verdicts) == len(findings)


@given(findings=FINDINGS, more=st.floats(0.0, 0.5))
def test_a_larger_gain_never_lowers_a_finding(findings, more):
    first = found(Kind.LAUNCH_BOUND, 0.2)
    others = [finding for finding in findings if finding.kind is not Kind.LAUNCH_BOUND]
    before = kinds(rank(settle([first, *others]), None, None)).index(Kind.LAUNCH_BOUND)
    larger = found(Kind.LAUNCH_BOUND, 0.2 + more)
    assert kinds(rank(settle([larger, *others]), None, None)).index(Kind.LAUNCH_BOUND) <= before


def test_confidence_weighs_gains():
    measured, bound = found(Kind.CLOCKS, 0.3, GainLabel.MEASURED), found(Kind.OVERLOAD, 0.5, GainLabel.UPPER_BOUND)
    assert kinds(rank([bound, measured], None, None)) == [Kind.CLOCKS, Kind.OVERLOAD]
    assert score(bound) == pytest.approx(0.25)
    assert score(refuted(Kind.CLOCKS, "no")) == 0.0


def test_predictions_that_did_not_hold_lower_their_class():
    first, second = found(Kind.CLOCKS, 0.4), found(Kind.OVERLOAD, 0.3)
    assert kinds(rank([first, second], None, None)) == [Kind.CLOCKS, Kind.OVERLOAD]
    records = {Kind.CLOCKS: TrackRecord(judged=4, held=0)}
    assert kinds(rank([first, second], None, None, records)) == [Kind.OVERLOAD, Kind.CLOCKS]
    assert score(first, records) == pytest.approx(score(first) * 2 / 6)


@given(judged=st.integers(0, 50), held=st.integers(0, 50), other=st.integers(0, 50))
def test_a_record_earns_between_nothing_and_all_and_more_for_each_that_held(judged, held, other):
    held, other = min(held, judged), min(other, judged)
    record, another = TrackRecord(judged, held), TrackRecord(judged, other)
    assert 0.0 < record.earned <= 1.0
    assert (record.earned >= another.earned) == (held >= other)
    assert TrackRecord().earned == 1.0


def test_equal_gains_stand_in_the_order_of_the_taxonomy():
    same = [found(kind, 0.2) for kind in reversed(list(Kind)) if kind is not Kind.INVALID_MEASUREMENT]
    assert kinds(rank(same, None, None)) == list(Kind)[:-1]


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        pytest.param(found(Kind.CLOCKS, MATERIAL), Verdict.CONFIRMED, id="just enough"),
        pytest.param(found(Kind.CLOCKS, MATERIAL * 0.99), Verdict.REFUTED, id="just too little"),
        pytest.param(
            found(Kind.CLOCKS, 0.031, metric=GainMetric.THROUGHPUT), Verdict.CONFIRMED, id="throughput by its saving"
        ),
        pytest.param(
            found(Kind.CLOCKS, 0.0305, metric=GainMetric.THROUGHPUT), Verdict.REFUTED, id="throughput too little"
        ),
        pytest.param(
            found(Kind.CLOCKS, 0.1, GainLabel.MEASURED, low=0.02, high=0.18), Verdict.REFUTED, id="measured noise"
        ),
        pytest.param(
            found(Kind.CLOCKS, 0.1, GainLabel.UPPER_BOUND, low=0.0, high=0.2),
            Verdict.CONFIRMED,
            id="a bound is no noise",
        ),
        pytest.param(replace(found(Kind.CLOCKS, 0.1), gain=None), Verdict.CONFIRMED, id="gain not known"),
    ],
)
def test_what_costs_too_little_is_no_bottleneck(finding, verdict):
    (settled,) = settle([finding])
    assert settled.verdict is verdict
    if verdict is Verdict.REFUTED:
        assert (settled.gain, settled.fix, settled.verify) == (None, None, "")
        assert settled.evidence[-1].threshold == MATERIAL


def test_an_invalid_window_carries_no_verdict():
    invalid = Finding(kind=Kind.INVALID_MEASUREMENT, verdict=Verdict.CONFIRMED, summary="N is wrong")
    ranked = rank(settle([found(Kind.CLOCKS, 0.9), refuted(Kind.OVERLOAD, "no"), invalid]), None, None)
    assert kinds(ranked) == [Kind.INVALID_MEASUREMENT, Kind.CLOCKS, Kind.OVERLOAD]
    assert [finding.verdict for finding in ranked] == [Verdict.CONFIRMED, Verdict.UNVERIFIED, Verdict.REFUTED]
    assert ranked[1].fix is None
    assert ranked[1].missing


@pytest.mark.parametrize(
    ("cause", "first"),
    [
        pytest.param(found(Kind.LANE_COUNT, 0.5, metric=GainMetric.THROUGHPUT), Kind.LANE_COUNT, id="covers it"),
        pytest.param(
            found(Kind.LANE_COUNT, 0.5, metric=GainMetric.THROUGHPUT, low=0.1), Kind.OVERLOAD, id="may not cover it"
        ),
        pytest.param(found(Kind.LANE_COUNT, 0.1, metric=GainMetric.THROUGHPUT), Kind.OVERLOAD, id="too little"),
        pytest.param(found(Kind.CLOCKS, 0.5), Kind.OVERLOAD, id="latency alone"),
    ],
)
def test_overload_is_the_symptom_of_a_cause_that_covers_it(cause, first):
    findings = [found(Kind.OVERLOAD, 0.9), cause]
    assert kinds(rank(findings, 120.0, 100.0))[0] is first
    assert kinds(rank(findings, None, 100.0))[0] is Kind.OVERLOAD

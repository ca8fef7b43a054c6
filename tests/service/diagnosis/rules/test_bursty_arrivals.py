"""Bursts: the arrivals that came against the same evened out, through the same queue."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

import pytest

from service.diagnosis.finding import GainMetric, Verdict
from service.diagnosis.rules.bursty_arrivals import examine, independent
from tests.doubles.faults import bursty_arrivals, saturated
from tests.doubles.snapshots import healthy

BURSTS = bursty_arrivals()


def came(**changes):
    return replace(BURSTS, arrivals=replace(BURSTS.arrivals, **changes))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(BURSTS, Verdict.CONFIRMED, "arrivals come in crowds", id="crowds"),
        pytest.param(healthy(), Verdict.REFUTED, "a Poisson stream by 1", id="Poisson"),
        pytest.param(
            replace(saturated(), arrivals=BURSTS.arrivals), Verdict.REFUTED, "no room on average", id="loaded"
        ),
        pytest.param(came(log=independent(BURSTS.arrivals.log)), Verdict.REFUTED, "would be 0.3 % less", id="harmless"),
        pytest.param(
            came(log=BURSTS.arrivals.log[:150]), Verdict.UNVERIFIED, "how long they would wait", id="short log"
        ),
        pytest.param(replace(BURSTS, costs_s={}), Verdict.UNVERIFIED, "how long they would wait", id="no costs"),
        pytest.param(came(gap_cv2=None), Verdict.UNVERIFIED, "not recorded", id="gaps not known"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_of_the_99th_percentile():
    gain = examine(BURSTS).gain
    assert gain.metric is GainMetric.LATENCY_P99
    assert 0.2 < gain.value < 1.0
    assert gain.low == pytest.approx(gain.value / 2)


def test_independent_arrivals_keep_rows_and_about_the_time():
    log = BURSTS.arrivals.log
    calm = independent(log)
    assert independent(log) == calm
    assert calm[0].at_s == log[0].at_s
    assert calm[-1].at_s - calm[0].at_s == pytest.approx(log[-1].at_s - log[0].at_s, rel=0.1)
    assert [one.rows for one in calm] == [one.rows for one in log]
    gaps = [later.at_s - one.at_s for one, later in itertools.pairwise(calm)]
    assert statistics.pvariance(gaps) / statistics.mean(gaps) ** 2 == pytest.approx(1.0, rel=0.2)
    assert len(independent(log[:1])) == 1

"""Bursts: the arrivals that came against the same evened out, through the same queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import GainMetric, Verdict
from service.diagnosis.rules.bursty_arrivals import evened, examine
from tests.doubles.faults import arrivals, bursty_arrivals, saturated
from tests.doubles.snapshots import healthy, poisson_like

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
        pytest.param(came(log=evened(BURSTS.arrivals.log)), Verdict.REFUTED, "would fall by 0.0 %", id="harmless"),
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
    assert (gain.low, 0.2 < gain.value < 1.0) == (0.0, True)


def test_evening_out_keeps_rows_and_times():
    log = poisson_like(300)
    even = evened(log)
    assert (even[0].at_s, even[-1].at_s) == (log[0].at_s, pytest.approx(log[-1].at_s))
    assert [one.rows for one in even] == [one.rows for one in log]
    assert len(evened(log[:1])) == 1
    assert arrivals(7.0).gap_cv2 == 1.0

"""Interference: in traffic against alone, at equal clocks and lanes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.interference import examine
from service.telemetry.snapshot_probes import Interval
from tests.doubles.faults import interference
from tests.doubles.snapshots import healthy, probes

BASE = healthy()


@pytest.mark.parametrize(
    ("factor", "others", "verdict", "words"),
    [
        pytest.param(Interval(1.4, 1.3, 1.5), 1, Verdict.CONFIRMED, "1.40 times as long", id="another process"),
        pytest.param(Interval(1.4, 1.3, 1.5), 0, Verdict.CONFIRMED, "1.40 times as long", id="unseen"),
        pytest.param(Interval(1.09, 1.05, 1.13), 1, Verdict.REFUTED, "1.09 times", id="too little"),
        pytest.param(Interval(1.4, 0.9, 1.9), 1, Verdict.REFUTED, "1.40 times", id="noise"),
        pytest.param(None, 0, Verdict.REFUTED, "no other process", id="alone"),
        pytest.param(None, 1, Verdict.UNVERIFIED, "not known", id="another process, no P14"),
        pytest.param(None, None, Verdict.UNVERIFIED, "not known", id="nothing known"),
    ],
)
def test_verdicts(factor, others, verdict, words):
    gpu = replace(BASE.gpu, other_processes=others)
    finding = examine(replace(BASE, gpu=gpu, probes=probes(interference=factor)))
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_what_was_measured():
    gain = examine(interference()).gain
    assert gain.label is GainLabel.MODELLED
    assert gain.low == pytest.approx((1 - 1 / (1.4 * 0.98)) * 560 / 1500)
    assert (1 - 1 / 1.4) * (560 + 350) / 1500 <= gain.value < 0.25

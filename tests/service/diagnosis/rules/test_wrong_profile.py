"""Profiles: measured regret, and what may be said where there is nothing to compare."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.wrong_profile import examine
from tests.doubles.faults import EIGHT, wrong_profile
from tests.doubles.snapshots import MODEL, around, healthy, probes


def p7(own_s: float, other_s: float, half_width: float = 0.02):
    costs = {0: around(own_s, half_width), 1: around(other_s, half_width)}
    return probes(profile_costs=MappingProxyType({EIGHT: costs}))


def alone(opt: int):
    return healthy(model=replace(MODEL, profile_opts=(opt,)), probes=probes(profile_costs={}))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(wrong_profile(), Verdict.CONFIRMED, "profile 1 would run it sooner", id="another is quicker"),
        pytest.param(healthy(probes=p7(560e-6, 535e-6)), Verdict.REFUTED, "save 4.5 %", id="too little"),
        pytest.param(healthy(probes=p7(560e-6, 500e-6, 0.1)), Verdict.REFUTED, "save 10.7 %", id="noise"),
        pytest.param(healthy(), Verdict.REFUTED, "save 0.0 %", id="the best is used"),
        pytest.param(
            replace(wrong_profile(), buckets=(replace(healthy().buckets[0], profile=None),)),
            Verdict.REFUTED,
            "save 0.0 %",
            id="not known which is used",
        ),
        pytest.param(alone(8), Verdict.REFUTED, "near the optimum", id="one, at the traffic"),
        pytest.param(alone(64), Verdict.UNVERIFIED, "8.0 times away", id="one, far above"),
        pytest.param(alone(1), Verdict.UNVERIFIED, "8.0 times away", id="one, far below"),
        pytest.param(healthy(probes=probes(profile_costs={})), Verdict.UNVERIFIED, "on two profiles", id="no P7"),
        pytest.param(healthy(buckets=()), Verdict.UNVERIFIED, "on two profiles", id="no batches"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_the_regret():
    gain = examine(wrong_profile()).gain
    assert gain.label is GainLabel.MODELLED
    assert gain.low == pytest.approx((130 - 0.02 * 990) / 1500)
    assert (1 - 430 / 560) * (560 + 350) / 1500 <= gain.value < 0.2

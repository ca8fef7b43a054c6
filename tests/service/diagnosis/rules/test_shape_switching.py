"""Switching: how often, and what once costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.shape_switching import examine
from tests.doubles.faults import shape_switching
from tests.doubles.snapshots import MODEL, around, healthy, probes


def switches(count: int):
    return replace(healthy(), device=replace(healthy().device, shape_switches=count))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(shape_switching(), Verdict.CONFIRMED, "3000 times, 3 ms each: 21.4 %", id="often"),
        pytest.param(switches(400), Verdict.REFUTED, "takes 2.9 %", id="seldom"),
        pytest.param(
            replace(shape_switching(), probes=probes(switch_cost=around(3e-3, 1.1))),
            Verdict.REFUTED,
            "21.4 %",
            id="noise",
        ),
        pytest.param(switches(0), Verdict.REFUTED, "no context changed", id="never"),
        pytest.param(
            replace(shape_switching(), probes=probes(switch_cost=None)),
            Verdict.UNVERIFIED,
            "what that costs",
            id="no P8",
        ),
        pytest.param(healthy(device=None), Verdict.UNVERIFIED, "not recorded", id="not counted"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_fix_names_the_dimensions():
    model = replace(MODEL, dim_names=("height", "width"), dim_sizes=(None, None))
    card = examine(replace(shape_switching(), model=model)).fix.card
    assert card.splitlines()[1].startswith("height = ")
    assert card.splitlines()[2].startswith("width = ")

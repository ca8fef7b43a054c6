"""Memory-bound: the device limits, and most of its time is at the memory's roof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.memory_bound import examine
from tests.doubles.faults import compute_bound, memory_bound
from tests.doubles.snapshots import MODEL, healthy


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(memory_bound(), Verdict.CONFIRMED, "near the memory's peak, long first", id="at the roof"),
        pytest.param(compute_bound(), Verdict.REFUTED, "20.0 % of the time is in memory-bound layers", id="other roof"),
        pytest.param(healthy(layers=memory_bound().layers), Verdict.REFUTED, "has room", id="room"),
        pytest.param(replace(memory_bound(), layers=()), Verdict.UNVERIFIED, "by which roof", id="no layers"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


@pytest.mark.parametrize(("precision", "card"), [("FP32", '"fp16"'), ("FP16", "optimization_level")])
def test_half_the_bytes_are_an_upper_bound(precision, card):
    finding = examine(replace(memory_bound(), model=replace(MODEL, precision=precision)))
    assert card in finding.fix.card
    assert finding.gain.low == 0.0
    assert finding.gain.value > 0.5

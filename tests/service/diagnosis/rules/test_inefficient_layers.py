"""Inefficient layers: reasons that can be named are confirmed, others are for Nsight Compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.inefficient_layers import examine
from tests.doubles.faults import inefficient_layers
from tests.doubles.snapshots import healthy, layer, layer_profile, probes

FAST = layer("fast", 90e-6, "compute")


def of(*layers, **changes):
    return healthy(layers=(layer_profile(FAST, *layers),), **changes)


def reformat(time_s: float):
    return layer("to FP32", time_s, "memory", is_reformat=True)


def plain(time_s: float, **changes):
    return layer("odd", time_s, "compute", **({"is_tensor_core": False} | changes))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(of(reformat(10e-6)), Verdict.CONFIRMED, "reformats take 10.0 %", id="reformats"),
        pytest.param(of(plain(10e-6)), Verdict.CONFIRMED, "10.0 %: odd", id="no tensor cores"),
        pytest.param(of(reformat(4e-6), plain(4e-6)), Verdict.REFUTED, "no reformat", id="little of both"),
        pytest.param(of(plain(10e-6, is_tensor_core=None)), Verdict.REFUTED, "no reformat", id="tactic says nothing"),
        pytest.param(of(plain(10e-6, is_matrix_product=False)), Verdict.REFUTED, "no reformat", id="no product"),
        pytest.param(
            of(layer("slow", 20e-6, "neither")),
            Verdict.UNVERIFIED,
            "slow takes 18.2 % of the time, at 30.0 %",
            id="slow",
        ),
        pytest.param(of(layer("slow", 5e-6, "neither")), Verdict.REFUTED, "no reformat", id="slow but short"),
        pytest.param(
            replace(inefficient_layers(), probes=probes(peaks=None)), Verdict.CONFIRMED, "to FP32", id="no peaks needed"
        ),
        pytest.param(healthy(layers=()), Verdict.UNVERIFIED, "times are not known", id="no layers"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_all_of_the_reformats_and_half_of_the_products_at_most():
    gain = examine(inefficient_layers()).gain
    assert gain is not None
    share = 25 / 105 + 20 / 105 / 2
    assert share * (560 + 350) / 1500 <= gain.value < 1.2 * share * (560 + 350) / 1500
    assert (gain.low, gain.label) == (0.0, GainLabel.UPPER_BOUND)

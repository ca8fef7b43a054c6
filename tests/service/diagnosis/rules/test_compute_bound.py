"""Compute-bound: the device limits, most of its time is at the compute roof, and its SMs are busy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import GainLabel, GainMetric, Verdict
from service.diagnosis.rules.compute_bound import examine
from tests.doubles.faults import compute_bound, memory_bound
from tests.doubles.snapshots import MODEL, healthy, layer, layer_profile, probes

BUSY = compute_bound().gpu


def at_roof(*layers, **changes):
    return replace(compute_bound(), layers=(layer_profile(*layers),), **changes)


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(compute_bound(), Verdict.CONFIRMED, "80.0 % of its time is in layers", id="at the roof"),
        pytest.param(replace(compute_bound(), gpu=None), Verdict.CONFIRMED, "80.0 %", id="no counters"),
        pytest.param(memory_bound(), Verdict.REFUTED, "20.0 % of the time is in compute-bound layers", id="other roof"),
        pytest.param(
            replace(compute_bound(), gpu=replace(BUSY, sm_activity_ratio=0.2)),
            Verdict.REFUTED,
            "only 20.0 % of the SMs were busy",
            id="idle SMs",
        ),
        pytest.param(
            healthy(layers=compute_bound().layers), Verdict.REFUTED, "the device has room: it is 32.5 %", id="room"
        ),
        pytest.param(
            at_roof(layer("a", 40e-6, "compute"), layer("b", 60e-6, "compute", flops=None)),
            Verdict.UNVERIFIED,
            "60.0 % is not known",
            id="too little is known",
        ),
        pytest.param(
            at_roof(layer("a", 60e-6, "compute"), layer("b", 40e-6, "compute", flops=None)),
            Verdict.CONFIRMED,
            "60.0 %",
            id="enough is known",
        ),
        pytest.param(replace(compute_bound(), layers=()), Verdict.UNVERIFIED, "by which roof", id="no layers"),
        pytest.param(
            replace(compute_bound(), probes=probes(peaks=None)), Verdict.UNVERIFIED, "by which roof", id="no peaks"
        ),
        pytest.param(replace(compute_bound(), stations={}), Verdict.UNVERIFIED, "not recorded", id="load not known"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


@pytest.mark.parametrize(("precision", "mode"), [("FP32", "fp16"), ("FP16", "int8"), ("BF16", "int8")])
def test_fewer_bits_are_an_upper_bound(precision, mode):
    finding = examine(replace(compute_bound(), model=replace(MODEL, precision=precision)))
    assert finding.fix is not None
    assert finding.fix.card == f'[precision]\nmode = "{mode}"'
    assert finding.gain is not None
    assert (finding.gain.metric, finding.gain.label, finding.gain.low) == (
        GainMetric.THROUGHPUT,
        GainLabel.UPPER_BOUND,
        0.0,
    )
    # 1 / (0.2 + 0.8 / 2) would be 1.67 times as much; the event loop stops it at 49,091 of 30,769 rows/s.
    assert finding.gain.value == pytest.approx(27_000 / 0.55 / 30_769 - 1)


def test_nothing_is_promised_where_no_fewer_bits_are_left():
    finding = examine(replace(compute_bound(), model=replace(MODEL, precision="INT8")))
    assert finding.verdict is Verdict.CONFIRMED
    assert finding.gain is None
    assert "more GPUs" in finding.fix.text


def test_the_layers_tell_the_precision_that_the_card_leaves_open():
    left_open = replace(compute_bound(), model=replace(MODEL, precision=""))
    assert examine(left_open).fix.card == '[precision]\nmode = "int8"'
    mixed = replace(
        left_open, layers=(layer_profile(layer("a", 60e-6, "compute"), layer("b", 40e-6, "memory", dtype="FP32")),)
    )
    assert examine(mixed).fix.card == '[precision]\nmode = "int8"'


def test_utilisation_is_said_not_to_be_efficiency():
    busy = replace(memory_bound(), stations=memory_bound().stations, gpu=replace(BUSY, sm_activity_ratio=0.2))
    assert "GPU utilisation is not efficiency" in examine(replace(compute_bound(), gpu=busy.gpu)).note

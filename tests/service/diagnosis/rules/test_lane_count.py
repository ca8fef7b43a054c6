"""Lanes: too few where the device limits, too many where they slow each other down."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.lane_count import examine
from service.telemetry.snapshot_load import Durations
from tests.doubles.faults import lane_count, saturated
from tests.doubles.snapshots import around, cost_s, healthy, probes

BASE = healthy()
FLAT = probes(lane_rates=MappingProxyType({1: around(30_000), 2: around(30_500), 8: around(30_769)}))


def slowed(factor: float, together: float | None = 5.0, lanes: int = 8):
    """Many lanes on a device that one of them fills."""
    use = replace(BASE.buckets[0], compute=Durations(75_000, 75_000 * cost_s(8) * factor))
    device = replace(BASE.device, lanes=lanes, lanes_busy_mean=together)
    return replace(BASE, buckets=(use,), device=device, probes=FLAT)


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(lane_count(), Verdict.CONFIRMED, "2 lanes reach 3.8e+04 rows/s", id="too few"),
        pytest.param(
            replace(BASE, device=lane_count().device, probes=lane_count().probes),
            Verdict.REFUTED,
            "but the device is only",
            id="too few, but there is room",
        ),
        pytest.param(
            replace(lane_count(), probes=probes(lane_rates={1: around(29_000), 2: around(31_000)})),
            Verdict.REFUTED,
            "what the device has room for",
            id="one more adds too little",
        ),
        pytest.param(
            replace(lane_count(), probes=probes(lane_rates={1: around(29_000), 2: around(38_000, 0.3)})),
            Verdict.REFUTED,
            "what the device has room for",
            id="more, or noise",
        ),
        pytest.param(slowed(4.0), Verdict.CONFIRMED, "4.00 times as long as alone", id="too many"),
        pytest.param(slowed(1.05), Verdict.REFUTED, "slow nothing", id="many, but idle"),
        pytest.param(slowed(1.5, together=1.02), Verdict.REFUTED, "slow nothing", id="slow for another reason"),
        pytest.param(slowed(4.0, together=None), Verdict.UNVERIFIED, "whether the others slow", id="overlap not known"),
        pytest.param(
            replace(slowed(4.0), costs_s={}), Verdict.UNVERIFIED, "whether the others slow", id="alone not known"
        ),
        pytest.param(
            replace(BASE, probes=probes(lane_rates={2: around(30_769)})),
            Verdict.UNVERIFIED,
            "other numbers",
            id="no P4",
        ),
        pytest.param(
            replace(
                saturated(),
                device=lane_count().device,
                probes=probes(lane_rates={1: around(20_000), 2: around(38_000)}),
                costs_s={},
                model=replace(BASE.model, dim_names=("length",), dim_sizes=((8,),)),
            ),
            Verdict.UNVERIFIED,
            "costs of full batches",
            id="busy, perhaps with small batches",
        ),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_more_lanes_gain_what_p4_measured():
    gain = examine(lane_count()).gain
    assert (gain.label, gain.value) == (GainLabel.MEASURED, pytest.approx(38 / 29 - 1))


def test_fewer_lanes_gain_at_most_what_they_slow():
    finding = examine(slowed(4.0, together=2.0))
    assert finding.gain.value == pytest.approx(0.5 * 560 / 1500)
    assert finding.gain.low == 0.0
    assert finding.fix.card == "[lanes]\ncount = 1"

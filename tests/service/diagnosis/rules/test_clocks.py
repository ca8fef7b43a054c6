"""Clocks: held down by a named cause, or slow after the pauses of this traffic."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.clocks import examine
from service.telemetry.gpu_figures import ClockEvent
from service.telemetry.snapshot_probes import Interval
from tests.doubles.faults import clocks
from tests.doubles.snapshots import around, healthy, probes

BASE = healthy()


def clock(ratio: float, **events: float):
    by_event = MappingProxyType({ClockEvent(name): share for name, share in events.items()})
    return replace(BASE, gpu=replace(BASE.gpu, sm_clock_ratio=ratio, clock_events=by_event))


def p12(factors: dict[float, Interval]):
    return replace(BASE, probes=probes(idle_factors=MappingProxyType(factors)))


PAUSE_S = 60 * 0.3 / 75_000


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(
            clocks(), Verdict.CONFIRMED, "70.0 % of their highest clock, held down by sw_power_cap", id="power"
        ),
        pytest.param(clock(0.9, hw_thermal_slowdown=0.2), Verdict.CONFIRMED, "hw_thermal_slowdown", id="heat"),
        pytest.param(
            p12({0.0: around(1.0, 0.01), PAUSE_S / 2: around(1.5)}), Verdict.CONFIRMED, "1.50 times", id="ramp"
        ),
        pytest.param(p12({PAUSE_S * 2: around(1.5)}), Verdict.REFUTED, "100.0 %", id="pauses are shorter"),
        pytest.param(p12({PAUSE_S / 2: Interval(1.5, 1.0, 2.0)}), Verdict.REFUTED, "100.0 %", id="noise"),
        pytest.param(clock(0.96, sw_power_cap=0.9), Verdict.REFUTED, "96.0 %", id="hardly below"),
        pytest.param(clock(0.7, idle=1.0), Verdict.UNVERIFIED, "nothing is named", id="only idle"),
        pytest.param(clock(0.7, sw_power_cap=0.05), Verdict.UNVERIFIED, "nothing is named", id="seldom held down"),
        pytest.param(healthy(gpu=None), Verdict.UNVERIFIED, "not known", id="no NVML"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_at_most_what_the_clock_lacks():
    gain = examine(clocks()).gain
    assert (gain.label, gain.low) == (GainLabel.UPPER_BOUND, 0.0)
    assert 0.3 * (560 + 350) / 1500 <= gain.value < 0.25


def test_no_batches_have_no_pauses():
    assert examine(replace(p12({0.0: around(9.0)}), buckets=())).verdict is Verdict.REFUTED

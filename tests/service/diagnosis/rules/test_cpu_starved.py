"""Starved: quota and steal are named, pressure alone is not."""

from __future__ import annotations

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.cpu_starved import examine
from service.telemetry.snapshot_load import HostFigures
from tests.doubles.faults import cpu_starved
from tests.doubles.snapshots import healthy


@pytest.mark.parametrize(
    ("host", "verdict", "words"),
    [
        pytest.param(
            HostFigures(throttled_period_ratio=0.4, throttled_time_ratio=0.25), Verdict.CONFIRMED, "40.0 %", id="quota"
        ),
        pytest.param(HostFigures(throttled_period_ratio=0.4), Verdict.CONFIRMED, "40.0 %", id="time not known"),
        pytest.param(HostFigures(steal_ratio=0.2), Verdict.CONFIRMED, "20.0 % of the CPU", id="stolen"),
        pytest.param(HostFigures(throttled_period_ratio=0.009), Verdict.REFUTED, "did not run out", id="hardly ever"),
        pytest.param(HostFigures(steal_ratio=0.04, pressure_ratio=0.1), Verdict.REFUTED, "nobody took", id="a little"),
        pytest.param(
            HostFigures(throttled_period_ratio=0.0, pressure_ratio=0.5),
            Verdict.UNVERIFIED,
            "50.0 %",
            id="pressure alone",
        ),
        pytest.param(HostFigures(), Verdict.UNVERIFIED, "not recorded", id="nothing known"),
    ],
)
def test_verdicts(host, verdict, words):
    finding = examine(healthy(host=host))
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_the_time_that_stood_still():
    gain = examine(cpu_starved()).gain
    assert (gain.value, gain.low, gain.high) == (0.25, 0.125, 0.5)

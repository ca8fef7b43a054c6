"""Starved: quota and steal are named, pressure alone is not."""

from __future__ import annotations

import pytest

from service.diagnosis.finding import GainMetric, Verdict
from service.diagnosis.rules.cpu_starved import examine
from service.telemetry.snapshot_load import HostFigures
from tests.doubles.faults import cpu_starved
from tests.doubles.snapshots import healthy, stations


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


def crowded(worked: float, waited: float | None, **busy):
    return healthy(
        stations=stations(event_loop=worked, device=0.2, **busy),
        host=HostFigures(loop_wait_ratio=waited, pressure_ratio=0.5, throttled_period_ratio=0.0, steal_ratio=0.0),
    )


@pytest.mark.parametrize(
    ("snapshot", "verdict"),
    [
        pytest.param(crowded(0.6, 0.35), Verdict.CONFIRMED, id="never idle, much of it waiting"),
        pytest.param(crowded(0.6, None), Verdict.UNVERIFIED, id="its wait is not known"),
        pytest.param(crowded(0.7, 0.2), Verdict.UNVERIFIED, id="never idle, but it works"),
        pytest.param(crowded(0.3, 0.3), Verdict.UNVERIFIED, id="it waits, but has time left"),
        pytest.param(crowded(0.6, 0.35, thread_pool=0.9), Verdict.UNVERIFIED, id="something else limits"),
    ],
)
def test_a_loop_that_others_keep_from_its_core(snapshot, verdict):
    assert examine(snapshot).verdict is verdict


def test_with_a_core_of_its_own_the_loop_serves_while_it_waits_now():
    finding = examine(crowded(0.6, 0.3))
    assert finding.gain.metric is GainMetric.THROUGHPUT
    assert finding.gain.value == pytest.approx(0.5)
    assert finding.gain.low == pytest.approx(0.25)
    rows_per_s = healthy().rows_per_s
    assert f"takes at most {rows_per_s / 0.9:.4g} rows/s" in finding.summary


def test_the_gain_is_the_time_that_stood_still():
    gain = examine(cpu_starved()).gain
    assert (gain.value, gain.low, gain.high) == (0.25, 0.125, 0.5)

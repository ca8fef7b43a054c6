"""Gaps: idle time with requests waiting, by cause."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.gpu_idle_gaps import examine
from service.telemetry.snapshot_device import GapCause
from tests.doubles.faults import gpu_idle_gaps
from tests.doubles.snapshots import healthy, stations

BASE = healthy()


def gaps(**seconds: float):
    by_cause = MappingProxyType({GapCause(name): gap_s for name, gap_s in seconds.items()})
    return replace(BASE, device=replace(BASE.device, idle_with_backlog_s=by_cause))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(gpu_idle_gaps(), Verdict.CONFIRMED, "25.0 % of the time although requests waited", id="gaps"),
        pytest.param(gaps(host_submit=6.1), Verdict.CONFIRMED, "host_submit", id="just above"),
        pytest.param(gaps(host_submit=5.9), Verdict.REFUTED, "9.8 %", id="just below"),
        pytest.param(gaps(formation=20.0), Verdict.REFUTED, "0.0 %", id="waits for company"),
        pytest.param(
            replace(gpu_idle_gaps(), stations=stations(device=0.85)), Verdict.REFUTED, "25.0 %", id="busy all the same"
        ),
        pytest.param(replace(BASE, device=None), Verdict.UNVERIFIED, "not recorded", id="not recorded"),
        pytest.param(
            replace(BASE, device=replace(BASE.device, idle_with_backlog_s=None)),
            Verdict.UNVERIFIED,
            "not recorded",
            id="gaps not recorded",
        ),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


@pytest.mark.parametrize(
    ("cause", "card"),
    [
        ("host_submit", "[lanes]\ncount = 2"),
        ("sync_notify", '[lanes]\ncompletion = "spin"'),
        ("copy", "[lanes]\ncount = 2"),
    ],
)
def test_the_fix_is_of_the_longest_cause(cause, card):
    finding = examine(gaps(**({"host_submit": 4.0, "sync_notify": 4.0, "copy": 4.0} | {cause: 10.0})))
    assert finding.fix.card == card


def test_the_next_station_caps_the_gain():
    assert examine(gpu_idle_gaps()).gain.value == pytest.approx(0.25 / 0.7)
    capped = examine(replace(gpu_idle_gaps(), stations=stations(event_loop=0.9)))
    assert capped.gain.value == pytest.approx(1 / 0.9 - 1)
    assert capped.gain.high == pytest.approx(1 / 0.9 - 1)

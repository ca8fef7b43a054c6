"""Python: a loaded event loop, JSON, and the interpreter's lock; lateness alone is none of them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, GainMetric, Verdict
from service.diagnosis.rules.python_bound import examine
from service.telemetry.snapshot_load import HostFigures, Stage
from tests.doubles.faults import cpu_starved, python_bound
from tests.doubles.snapshots import healthy, probes, requests, stations

LOADED = healthy(stations=stations(event_loop=0.95))
JSON_LOADED = replace(python_bound(), stations=MappingProxyType(stations(150_000, event_loop=0.95, device=0.2)))
LATE = HostFigures(loop_lag_p99_s=50e-3, gil_wait_ratio=0.05)


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(python_bound(), Verdict.CONFIRMED, "take 58.5 % of the latency, and 100.0 %", id="JSON"),
        pytest.param(
            LOADED, Verdict.CONFIRMED, "95.0 % loaded and would take at most 1.053e+04 rows/s", id="loaded loop"
        ),
        pytest.param(
            healthy(host=HostFigures(gil_wait_ratio=0.4)), Verdict.CONFIRMED, "waits for it 40.0 %", id="the lock"
        ),
        pytest.param(
            replace(python_bound(), requests=replace(python_bound().requests, json_share=0.1)),
            Verdict.REFUTED,
            "60.0 % loaded",
            id="binary",
        ),
        pytest.param(healthy(), Verdict.REFUTED, "45.0 % loaded, the codec takes 5.3 %", id="room"),
        pytest.param(cpu_starved(), Verdict.REFUTED, "45.0 % loaded", id="starved"),
        pytest.param(healthy(host=LATE), Verdict.UNVERIFIED, "runs late although", id="late for no known reason"),
        pytest.param(healthy(requests=requests(stages={})), Verdict.UNVERIFIED, "not recorded", id="no stages"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_json_gains_what_p11_measured():
    snapshot = python_bound()
    gain = examine(snapshot).gain
    assert (gain.label, gain.metric) == (GainLabel.MEASURED, GainMetric.LATENCY_MEAN)
    assert gain.value == pytest.approx(1.94e-3 / snapshot.latency_s)
    bound = examine(replace(snapshot, probes=probes(json_codec=None))).gain
    assert (bound.label, bound.value) == (GainLabel.UPPER_BOUND, pytest.approx(2.0e-3 / snapshot.latency_s))


def test_a_loaded_loop_gains_what_the_next_station_allows():
    gain = examine(LOADED).gain
    assert (gain.label, gain.low) == (GainLabel.UPPER_BOUND, 0.0)
    assert gain.value == pytest.approx(30_769 / (10_000 / 0.95) - 1, rel=1e-3)


def test_a_loop_that_parses_json_gains_by_binary_tensors():
    """0.38 ms of loop per row, all of which JSON seems to be: at most a hundredth is left, and copying caps it."""
    finding = examine(JSON_LOADED)
    assert finding.gain.label is GainLabel.MODELLED
    assert finding.gain.value == pytest.approx((2_500 / 0.1) / (2_500 / 0.95) - 1)
    assert "binary" in finding.fix.text


def test_the_lock_gains_its_share_of_what_needs_it():
    gain = examine(healthy(host=HostFigures(gil_wait_ratio=0.4))).gain
    stages_s = sum(healthy().stage_s(one) for one in (Stage.PARSE, Stage.DISPATCH, Stage.COMPLETE, Stage.RENDER))
    assert gain.value == pytest.approx(0.4 * stages_s / 1.5e-3)

"""Python: a loaded event loop, JSON, and the interpreter's lock; lateness alone is none of them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, GainMetric, Verdict
from service.diagnosis.rules.python_bound import examine
from service.diagnosis.stations import load_of, station_loads
from service.telemetry.snapshot_load import HostFigures, Stage, Station, StationFigures
from tests.doubles.faults import cpu_starved, python_bound
from tests.doubles.snapshots import REQUESTS, WINDOW_S, healthy, probes, requests, stations

LOADED = healthy(stations=stations(event_loop=0.95))
JSON_LOADED = replace(
    python_bound(), stations=MappingProxyType(stations(15_000, event_loop=0.95, device=0.02, h2d=0.01))
)
LOCKED = HostFigures(loop_lag_p99_s=50e-3, gil_wait_ratio=0.4)
LATE = HostFigures(loop_lag_p99_s=50e-3, gil_wait_ratio=0.05)


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(python_bound(), Verdict.CONFIRMED, "take 58.5 % of the latency, and 100.0 %", id="JSON"),
        pytest.param(
            LOADED, Verdict.CONFIRMED, "95.0 % loaded and would take at most 1.053e+04 rows/s", id="loaded loop"
        ),
        pytest.param(healthy(host=LOCKED), Verdict.CONFIRMED, "waits for it 40.0 %", id="the lock"),
        pytest.param(
            healthy(host=replace(LOCKED, loop_lag_p99_s=2e-3)), Verdict.REFUTED, "45.0 % loaded", id="waits, not late"
        ),
        pytest.param(
            healthy(host=replace(LOCKED, throttled_period_ratio=0.3)), Verdict.REFUTED, "45.0 % loaded", id="no quota"
        ),
        pytest.param(
            replace(python_bound(), requests=replace(python_bound().requests, json_share=0.1)),
            Verdict.REFUTED,
            "60.0 % loaded",
            id="binary",
        ),
        pytest.param(healthy(), Verdict.REFUTED, "45.0 % loaded, the codec takes 3.0 %", id="room"),
        pytest.param(cpu_starved(), Verdict.REFUTED, "45.0 % loaded", id="starved"),
        pytest.param(healthy(host=LATE), Verdict.UNVERIFIED, "runs late although", id="late for no known reason"),
        pytest.param(healthy(requests=requests(stages={})), Verdict.UNVERIFIED, "not recorded", id="no stages"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def behind_front_ends(front: float, engine: float, count: int = 4):
    """Front ends, of which the busiest is so loaded, and an engine behind them."""
    loops = {
        Station.EVENT_LOOP: StationFigures(count * front * WINDOW_S, REQUESTS, count),
        Station.ENGINE_LOOP: StationFigures(engine * WINDOW_S, REQUESTS),
    }
    return healthy(stations=MappingProxyType(stations() | loops), host=replace(healthy().host, frontends=count))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words", "command"),
    [
        pytest.param(
            behind_front_ends(0.95, 0.3),
            Verdict.CONFIRMED,
            "the busiest of 4 front ends limits: it is 95.0 % loaded",
            "--frontends 8",
            id="the busiest front end is full",
        ),
        pytest.param(
            behind_front_ends(0.3, 0.95),
            Verdict.CONFIRMED,
            "the event loop of the engine limits",
            None,
            id="the engine",
        ),
        pytest.param(
            behind_front_ends(0.95, 0.3, 1), Verdict.CONFIRMED, "the event loop limits", "--frontends 2", id="only one"
        ),
        pytest.param(behind_front_ends(0.4, 0.3), Verdict.REFUTED, "40.0 % loaded", None, id="room everywhere"),
        pytest.param(behind_front_ends(0.3, 0.4), Verdict.REFUTED, "40.0 % loaded", None, id="room, the engine fuller"),
    ],
)
def test_with_front_ends_the_fullest_loop_speaks(snapshot, verdict, words, command):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary
    if command is not None:
        assert command in finding.fix.command


def test_one_process_is_told_of_front_ends():
    assert "--frontends 2" in examine(LOADED).fix.command


def test_front_ends_share_the_demand_and_the_busiest_sets_the_ceiling():
    load = load_of(station_loads(behind_front_ends(0.5, 0.1)), Station.EVENT_LOOP)
    assert load.utilisation == pytest.approx(0.5)
    assert load.demand_s == pytest.approx(load.service_s / 4)
    assert load.capacity_rows_per_s == pytest.approx(REQUESTS / WINDOW_S / 0.5)


def test_json_gains_what_p11_measured():
    snapshot = python_bound()
    gain = examine(snapshot).gain
    assert (gain.label, gain.metric) == (GainLabel.MODELLED, GainMetric.LATENCY_MEAN)
    assert gain.value == pytest.approx(1.94e-3 / snapshot.latency_s)
    assert gain.low == pytest.approx((2.0e-3 * 0.98 - 60e-6 * 1.02) / snapshot.latency_s)
    bound = examine(replace(snapshot, probes=probes(json_codec=None))).gain
    assert (bound.label, bound.value) == (GainLabel.UPPER_BOUND, pytest.approx(2.0e-3 / snapshot.latency_s))


def test_the_wait_for_the_loop_shrinks_with_the_work():
    snapshot = python_bound()
    waiting = replace(
        snapshot, requests=requests({Stage.PARSE: 4e-3, Stage.RENDER: 2e-3}, count=15_000, json_share=1.0)
    )
    gain = examine(waiting).gain
    assert gain.value == pytest.approx(3 * 1.94e-3 / waiting.latency_s)
    assert gain.low == pytest.approx((2.0e-3 * 0.98 - 60e-6 * 1.02) / waiting.latency_s)


def test_waiting_for_the_loop_is_no_work():
    """Crowds wait for the loop, however short the work: 45 us of it are 0.4 % of their latency."""
    slow = requests({Stage.PARSE: 8e-3, Stage.RENDER: 1e-3}, json_share=1.0)
    assert examine(healthy(requests=slow)).verdict is Verdict.REFUTED


def test_a_loaded_loop_gains_what_the_next_station_allows():
    gain = examine(LOADED).gain
    assert (gain.label, gain.low) == (GainLabel.UPPER_BOUND, 0.0)
    assert gain.value == pytest.approx(30_769 / (10_000 / 0.95) - 1, rel=1e-3)


def test_a_loop_that_parses_json_gains_by_binary_tensors():
    """3.8 ms of loop per row, of which binary tensors save 1.94."""
    finding = examine(JSON_LOADED)
    assert finding.gain.label is GainLabel.MODELLED
    assert finding.gain.value == pytest.approx(1 / (1 - 1.94 / 3.8) - 1)
    assert "binary" in finding.fix.text


def test_the_lock_gains_its_share_of_what_needs_it():
    gain = examine(healthy(host=LOCKED)).gain
    stages_s = sum(healthy().stage_s(one) for one in (Stage.PARSE, Stage.DISPATCH, Stage.COMPLETE, Stage.RENDER))
    assert gain.value == pytest.approx(0.4 * stages_s / 1.5e-3)

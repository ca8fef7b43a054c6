"""Overload: what is asked against what the device can do, and whether anything waits for it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.buckets import Bucket
from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.overload import examine
from service.telemetry.snapshot_load import QueueFigures, Stage
from service.telemetry.snapshot_probes import Interval
from tests.doubles.faults import arrivals, overload, saturated
from tests.doubles.snapshots import cost_s, healthy, probes, requests, stations

ROWS = 30_000 * 60
CALM = requests({Stage.BACKLOG: 1e-3, Stage.COMPUTE: cost_s(32)}, count=ROWS)
GROWING = QueueFigures(depth_mean=100.0, depth_slope_per_s=Interval(5.0, 4.0, 6.0))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(overload(), Verdict.CONFIRMED, "4e+04 rows/s are asked for", id="long waits and refusals"),
        pytest.param(
            replace(overload(), requests=requests({Stage.BACKLOG: 20e-3}, count=ROWS)),
            Verdict.CONFIRMED,
            "is waiting",
            id="long waits",
        ),
        pytest.param(
            replace(overload(), requests=replace(CALM, failures={"timeout": 90_000})),
            Verdict.CONFIRMED,
            "refused or late",
            id="late ones",
        ),
        pytest.param(replace(overload(), requests=CALM, queue=GROWING), Verdict.CONFIRMED, "", id="growing queue"),
        pytest.param(replace(overload(), requests=CALM), Verdict.REFUTED, "nothing waits long", id="at the edge"),
        pytest.param(
            replace(overload(), requests=CALM, queue=replace(GROWING, depth_slope_per_s=Interval(5.0, -4.0, 14.0))),
            Verdict.REFUTED,
            "nothing waits long",
            id="growth that may be none",
        ),
        pytest.param(saturated(), Verdict.REFUTED, "87.8 % of what the device can do", id="nine tenths are not asked"),
        pytest.param(
            replace(overload(), stations=MappingProxyType(stations(ROWS, event_loop=0.99, device=0.98))),
            Verdict.REFUTED,
            "not the device limits, but event_loop",
            id="another station limits",
        ),
        pytest.param(replace(overload(), arrivals=None), Verdict.UNVERIFIED, "arrivals", id="arrivals not recorded"),
        pytest.param(
            replace(overload(), costs_s={}, probes=probes(lane_rates={})),
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


def test_a_busy_device_is_not_called_loaded():
    assert "busy nearly all the time" in examine(healthy(stations=stations(device=0.97))).note


def test_the_gain_is_the_latency_at_a_comfortable_load():
    gain = examine(overload()).gain
    assert gain is not None
    assert gain.label is GainLabel.MODELLED
    assert 0.9 < gain.value < 0.95


@pytest.mark.parametrize("costs_s", [{}, {Bucket(32): cost_s(32)}])
def test_without_a_line_through_the_costs_the_gain_is_at_most_the_wait(costs_s):
    gain = examine(replace(overload(), costs_s=costs_s)).gain
    assert gain is not None
    assert (gain.low, gain.label) == (0.0, GainLabel.UPPER_BOUND)


def test_a_costs_line_through_nothing_is_an_upper_bound():
    """A row that costs more than the ceiling says would not be served at 0.7 of it."""
    steep = MappingProxyType({Bucket(1): 1e-6, Bucket(32): 33e-3})
    gain = examine(replace(overload(), costs_s=steep)).gain
    assert gain is not None
    assert gain.label is GainLabel.UPPER_BOUND
    assert arrivals(5.0).rows_per_s == 5.0

"""Launch-bound: graphs that are switched off, and kernels too small for graphs to help."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.launch_bound import examine
from service.telemetry.snapshot_probes import Interval, LaunchProbe
from tests.doubles.faults import (
    EIGHT,
    FULL,
    graph_miss,
    launch_bound,
    launch_bound_by_tiny_layers,
    not_capturable,
    saturated,
)
from tests.doubles.snapshots import around, healthy, layer, layer_profile, probes


def p1(replay: Interval | None, bucket=EIGHT):
    launch = LaunchProbe(eager=around(700e-6), replay=replay, eager_host=around(600e-6))
    return probes(launches=MappingProxyType({bucket: launch}))


TWENTY = [layer(str(index), 1.8e-6, "neither", nbytes=1e6, flops=0.0) for index in range(20)]
UNNAMED = replace(launch_bound().buckets[0], miss_reason=None)


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(launch_bound(), Verdict.CONFIRMED, "graphs would save 20.0 %", id="graphs are off"),
        pytest.param(replace(launch_bound(), buckets=(UNNAMED,)), Verdict.CONFIRMED, "20.0 %", id="no reason told"),
        pytest.param(launch_bound_by_tiny_layers(), Verdict.CONFIRMED, "300 layers", id="tiny kernels"),
        pytest.param(
            replace(launch_bound(), probes=p1(Interval(650e-6, 600e-6, 720e-6))),
            Verdict.REFUTED,
            "could be told from noise",
            id="graphs save nothing",
        ),
        pytest.param(
            healthy(layers=(layer_profile(*TWENTY, layer("long", 400e-6, "compute")),)),
            Verdict.REFUTED,
            "long enough",
            id="few tiny ones",
        ),
        pytest.param(
            replace(launch_bound(), probes=p1(None)), Verdict.UNVERIFIED, "what one would save", id="P1 could not"
        ),
        pytest.param(healthy(layers=()), Verdict.UNVERIFIED, "too small is not known", id="graphs, layers not known"),
        pytest.param(graph_miss(), Verdict.REFUTED, "by their graphs", id="some miss one"),
        pytest.param(not_capturable(), Verdict.REFUTED, "by their graphs", id="none can be captured"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_precision_is_said_not_to_help():
    assert "Lower precision will not help" in examine(launch_bound()).note
    assert "Lower precision will not help" in examine(launch_bound_by_tiny_layers()).note


def test_the_gain_is_at_least_that_of_the_batch_itself():
    gain = examine(launch_bound()).gain
    assert gain.label is GainLabel.MODELLED
    assert gain.low == pytest.approx((140 - 0.02 * (700 + 560)) / 700 * 700 / 1640)
    assert gain.value >= 0.2 * (700 + 350) / 1640


def test_a_bucket_that_was_not_probed_saves_what_another_does():
    assert examine(replace(launch_bound(), probes=p1(around(560e-6), FULL))).gain == examine(launch_bound()).gain


def test_throughput_of_a_saturated_device_is_as_sure_as_the_probe():
    base = saturated()
    eager = replace(base.buckets[0], eager_runs=base.buckets[0].batches, replays=0, miss_reason="disabled")
    launch = LaunchProbe(eager=around(1.04e-3), replay=around(0.9e-3), eager_host=around(0.6e-3))
    snapshot = replace(base, buckets=(eager,))
    measured = examine(replace(snapshot, probes=probes(launches={FULL: launch}))).gain
    assert (measured.label, measured.value) == (GainLabel.MEASURED, pytest.approx(1.04 / 0.9 - 1))
    elsewhere = examine(replace(snapshot, probes=probes(launches={EIGHT: launch}))).gain
    assert (elsewhere.label, elsewhere.value) == (GainLabel.MODELLED, pytest.approx(measured.value))

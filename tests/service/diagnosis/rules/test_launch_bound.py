"""Launch-bound: graphs that are switched off, and kernels too small for graphs to help."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.launch_bound import examine
from service.telemetry.snapshot_probes import Interval, LaunchProbe
from tests.doubles.faults import EIGHT, FULL, graph_miss, launch_bound, launch_bound_by_tiny_layers, not_capturable
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


def test_the_gain_is_measured_where_the_bucket_was_probed_and_modelled_elsewhere():
    measured, modelled = (
        examine(launch_bound()).gain,
        examine(replace(launch_bound(), probes=p1(around(560e-6), FULL))).gain,
    )
    assert measured is not None
    assert modelled is not None
    assert measured.label is GainLabel.MEASURED
    assert measured.value == pytest.approx(0.2 * (700 + 350) / 1640)
    assert (modelled.label, modelled.value) == (GainLabel.MODELLED, pytest.approx(measured.value))

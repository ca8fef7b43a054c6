"""CPU preprocessing: work is told from waiting, and the next station caps the gain."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, GainMetric, Verdict
from service.diagnosis.rules.cpu_preprocess import examine
from service.telemetry.snapshot_load import Stage, Station
from tests.doubles.faults import cpu_preprocess
from tests.doubles.snapshots import MODEL, around, healthy, probes, requests, stations

SLOW = requests({Stage.PREPARE: 2e-3})
WORKING = MappingProxyType(stations(thread_pool=0.6))
"""0.48 ms of a core per row."""


def without(station: Station):
    return MappingProxyType({one: figures for one, figures in stations().items() if one is not station})


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(cpu_preprocess(), Verdict.CONFIRMED, "95.0 % loaded", id="the pool limits"),
        pytest.param(
            healthy(requests=requests({Stage.PREPARE: 0.5e-3}), stations=WORKING),
            Verdict.CONFIRMED,
            "24.6 % of the latency",
            id="much of the latency",
        ),
        pytest.param(healthy(requests=SLOW), Verdict.REFUTED, "the rest is waiting", id="waiting, not work"),
        pytest.param(healthy(), Verdict.REFUTED, "3.3 % of the latency", id="raw tensors"),
        pytest.param(
            healthy(requests=SLOW, stations=without(Station.THREAD_POOL)),
            Verdict.UNVERIFIED,
            "how much of that is work",
            id="work not recorded",
        ),
        pytest.param(
            healthy(stations=without(Station.THREAD_POOL)),
            Verdict.REFUTED,
            "3.3 % of the latency",
            id="no pool, no work",
        ),
        pytest.param(healthy(requests=requests(stages={})), Verdict.UNVERIFIED, "not recorded", id="no stages"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_throughput_is_capped_by_the_event_loop():
    gain = examine(cpu_preprocess()).gain
    assert gain is not None
    assert gain.metric is GainMetric.THROUGHPUT
    assert gain.value == pytest.approx((4_700 / 0.25) / (4_700 / 0.95) - 1)
    bound = examine(replace(cpu_preprocess(), probes=probes(device_preprocess=None))).gain
    assert bound is not None
    assert (bound.value, bound.low, bound.label) == (pytest.approx(gain.value), 0.0, GainLabel.UPPER_BOUND)


def test_latency_falls_by_what_the_device_does_not_take():
    snapshot = healthy(requests=requests({Stage.PREPARE: 0.5e-3}), stations=WORKING)
    gain = examine(snapshot).gain
    assert gain is not None
    assert gain.value == pytest.approx((0.48e-3 - 10e-6) / snapshot.latency_s)
    bound = examine(replace(snapshot, probes=probes(device_preprocess=None))).gain
    assert bound is not None
    assert (bound.value, bound.label) == (pytest.approx(0.48e-3 / snapshot.latency_s), GainLabel.UPPER_BOUND)
    slower = examine(replace(snapshot, probes=probes(device_preprocess=around(1e-3)))).gain
    assert slower is not None
    assert slower.value == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "name the task in the card"),
        ({"has_media_form": True}, "send media that the model's kernels take"),
        ({"backend": "onnxruntime"}, "more cores"),
    ],
)
def test_the_fix_depends_on_the_backend(changes, words):
    fix = examine(replace(cpu_preprocess(), model=replace(MODEL, **changes))).fix
    assert fix is not None
    assert words in fix.text

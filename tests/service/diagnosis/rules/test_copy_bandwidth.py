"""Copies: as long as computing, not hidden, and as quick as the bus allows."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.diagnosis.finding import GainLabel, GainMetric, Verdict
from service.diagnosis.rules.copy_bandwidth import examine
from service.telemetry.snapshot_load import Durations
from service.telemetry.snapshot_probes import Interval
from tests.doubles.faults import EIGHT, copy_bandwidth
from tests.doubles.snapshots import around, healthy, probes, stations


def p3(exposed: Interval | None, **changes):
    return probes(exposed_copy=MappingProxyType({} if exposed is None else {EIGHT: exposed}), **changes)


LONG_OUT = replace(
    copy_bandwidth().buckets[0],
    h2d=Durations(37_500, 37_500 * 60e-6),
    h2d_bytes=37_500 * 1_200_000,
    d2h=Durations(37_500, 37_500 * 0.9e-3),
    d2h_bytes=int(37_500 * 0.9e-3 * 8e9),
)
NO_P2 = {"pinned_h2d_bytes_per_s": None}


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(
            copy_bandwidth(), Verdict.CONFIRMED, "copying in takes 900 us per batch", id="longer than computing"
        ),
        pytest.param(replace(copy_bandwidth(), buckets=(LONG_OUT,)), Verdict.CONFIRMED, "copying out", id="outputs"),
        pytest.param(healthy(probes=p3(around(0.1e-3))), Verdict.CONFIRMED, "copying in takes 60 us", id="not hidden"),
        pytest.param(
            healthy(probes=p3(Interval(0.1e-3, 1e-6, 0.2e-3))), Verdict.REFUTED, "10.7 %", id="perhaps hidden"
        ),
        pytest.param(healthy(probes=p3(None)), Verdict.REFUTED, "10.7 % of the model's time", id="short"),
        pytest.param(
            replace(copy_bandwidth(), probes=probes(pinned_h2d_bytes_per_s=80e9)),
            Verdict.REFUTED,
            "not the bytes are at fault",
            id="slow copies",
        ),
        pytest.param(
            replace(copy_bandwidth(), probes=probes(**NO_P2)), Verdict.CONFIRMED, "copying in", id="none was pageable"
        ),
        pytest.param(
            replace(copy_bandwidth(), probes=probes(**NO_P2), device=None),
            Verdict.UNVERIFIED,
            "whether they could be quicker",
            id="speed not known",
        ),
        pytest.param(healthy(buckets=()), Verdict.UNVERIFIED, "by the device's clock", id="not timed"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_latency_falls_by_what_was_not_hidden():
    gain = examine(copy_bandwidth()).gain
    assert gain is not None
    assert gain.value == pytest.approx(0.35e-3 / copy_bandwidth().latency_s)
    bound = examine(replace(copy_bandwidth(), probes=p3(None))).gain
    assert bound is not None
    assert (bound.value, bound.label) == (pytest.approx(0.905e-3 / copy_bandwidth().latency_s), GainLabel.UPPER_BOUND)


def test_a_copy_engine_that_limits_is_worth_throughput():
    busy = MappingProxyType(stations(5_000 * 60, event_loop=0.25, device=0.35, h2d=0.9))
    gain = examine(replace(copy_bandwidth(), stations=busy)).gain
    assert gain is not None
    assert (gain.metric, gain.label) == (GainMetric.THROUGHPUT, GainLabel.UPPER_BOUND)
    assert gain.value == pytest.approx(0.9 / 0.25 - 1)

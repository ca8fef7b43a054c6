"""The confusion matrix on snapshots made by hand, what a healthy server gets, and what one gets that tells nothing."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.diagnosis.finding import BottleneckClass, GainLabel, Verdict
from service.diagnosis.report import diagnose
from service.diagnosis.rules import RULES
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage
from service.telemetry.snapshot_probes import ProbeFigures
from tests.doubles.faults import FAULTS, launch_bound_by_tiny_layers, overload, saturated
from tests.doubles.snapshots import bare, healthy, requests, stations

Kind = BottleneckClass


def test_every_class_has_a_rule_and_a_fault_in_the_order_of_the_taxonomy():
    assert list(RULES) == list(Kind) == list(FAULTS)
    assert len(Kind) == 26


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.value)
def test_the_injected_fault_is_the_only_verdict(kind):
    report = diagnose(FAULTS[kind](), report_id="r")
    assert [finding.kind for finding in report.confirmed] == [kind]
    assert report.findings[0].kind is kind
    assert not report.is_healthy
    assert len(report.findings) == len(Kind)


@pytest.mark.parametrize("snapshot", [healthy(), saturated()], ids=["room", "saturated"])
def test_a_healthy_server_has_no_bottleneck(snapshot):
    report = diagnose(snapshot, report_id="r")
    assert report.is_healthy
    assert report.headline.startswith("no bottleneck above 3 %")


def test_a_healthy_server_needs_no_probes_to_be_called_so():
    report = diagnose(healthy(probes=ProbeFigures(), layers=()), report_id="r")
    assert report.is_healthy
    assert "could not be decided" in report.headline


def test_a_server_that_tells_nothing_is_not_called_healthy():
    report = diagnose(bare(), report_id="r")
    assert not report.confirmed
    assert not report.is_healthy
    assert "too little was recorded" in report.headline


@pytest.mark.parametrize(("prepare_s", "pool", "is_healthy"), [(15e-3, 0.1, False), (0.2e-3, 0.01, True)])
def test_threads_that_something_keeps_from_cores_are_not_healthy(prepare_s, pool, is_healthy):
    loaded = requests({Stage.PREPARE: prepare_s, Stage.BACKLOG: 0.0}, count=40_000, in_flight_std=3.0)
    used = stations(40_000, thread_pool=pool, device=0.2, event_loop=0.1)
    report = diagnose(healthy(requests=loaded, stations=used), report_id="r")
    assert not report.confirmed
    assert report.is_healthy is is_healthy
    assert ("from cores" in report.headline) is not is_healthy


def test_no_requests_are_no_verdict():
    report = diagnose(healthy(requests=requests(count=0)), report_id="r")
    assert [finding.kind for finding in report.confirmed] == [Kind.INVALID_MEASUREMENT]
    assert report.headline.startswith("this window cannot be judged")


def test_an_invalid_window_confirms_nothing_else():
    report = diagnose(FAULTS[Kind.INVALID_MEASUREMENT](), report_id="r")
    assert not report.is_valid
    overloaded = next(finding for finding in report.findings if finding.kind is Kind.OVERLOAD)
    assert overloaded.verdict is Verdict.UNVERIFIED


def test_kernels_too_small_are_launch_bound_too():
    assert diagnose(launch_bound_by_tiny_layers(), report_id="r").findings[0].kind is Kind.LAUNCH_BOUND


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.value)
def test_what_is_confirmed_says_what_to_do_and_what_must_move(kind):
    finding = diagnose(FAULTS[kind](), report_id="r").findings[0]
    assert finding.fix is not None
    assert finding.verify
    assert finding.evidence
    if kind is not Kind.INVALID_MEASUREMENT:
        assert finding.gain is not None
        assert finding.gain.low <= finding.gain.value <= finding.gain.high
        assert finding.gain.label is not GainLabel.UPPER_BOUND or finding.gain.low == 0.0


def _without(snapshot: MetricsSnapshot, part: str) -> MetricsSnapshot:
    empty = getattr(bare(), part)
    return replace(snapshot, **{part: empty})


PARTS = ("stations", "buckets", "costs_s", "queue", "arrivals", "device", "gpu", "layers", "host", "client", "probes")


@settings(max_examples=150)
@given(kind=st.sampled_from(list(Kind)), parts=st.sets(st.sampled_from(PARTS)))
def test_missing_data_never_makes_another_verdict(kind, parts):
    """Whatever is not recorded may leave a fault undecided, but confirms no fault that is not there."""
    snapshot = FAULTS[kind]()
    for part in parts:
        snapshot = _without(snapshot, part)
    report = diagnose(snapshot, report_id="r")
    assert {finding.kind for finding in report.confirmed} <= {kind}
    for finding in report.findings:
        assert bool(finding.missing) == (finding.verdict is Verdict.UNVERIFIED)
        assert (finding.fix is None) == (finding.verdict is not Verdict.CONFIRMED)
        assert finding.summary


def test_overload_keeps_its_place_before_upper_bounds():
    report = diagnose(
        replace(FAULTS[Kind.COMPUTE_BOUND](), arrivals=overload().arrivals, requests=overload().requests), report_id="r"
    )
    assert report.confirmed[0].kind is Kind.OVERLOAD


def test_a_diagnosis_is_deterministic_and_quick():
    snapshot = FAULTS[Kind.BURSTY_ARRIVALS]()
    before = time.process_time()
    assert diagnose(snapshot, report_id="r") == diagnose(snapshot, report_id="r")
    assert time.process_time() - before < 2.0, "a diagnosis takes milliseconds; this bound catches a runaway alone"

"""What holds of every rule: its own fault, a healthy server, one that tells nothing, and one without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import BottleneckClass as Kind
from service.diagnosis.finding import Verdict
from service.diagnosis.rules import RULES
from service.telemetry.snapshot_device import DeviceFigures
from service.telemetry.snapshot_probes import ProbeFigures
from tests.doubles.faults import FAULTS, saturated
from tests.doubles.snapshots import MODEL, bare, healthy

GPU_ALONE = {
    Kind.COPY_BANDWIDTH,
    Kind.PAGEABLE_OR_ALLOCATING,
    Kind.LAUNCH_BOUND,
    Kind.GRAPH_MISS,
    Kind.NOT_CAPTURABLE,
    Kind.INEFFICIENT_LAYERS,
    Kind.GPU_IDLE_GAPS,
    Kind.WRONG_PROFILE,
    Kind.SHAPE_SWITCHING,
    Kind.CLOCKS,
}

DECIDED_WITHOUT_DATA = {Kind.BATCH_FORMATION_DELAY, Kind.INVALID_MEASUREMENT}
"""The card alone refutes the one (no delay, no wait); the other judges what data there are."""

PASSIVE = {
    Kind.OVERLOAD,
    Kind.BATCH_FORMATION_DELAY,
    Kind.CPU_PREPROCESS,
    Kind.PAGEABLE_OR_ALLOCATING,
    Kind.NOT_CAPTURABLE,
    Kind.INEFFICIENT_LAYERS,
    Kind.GPU_IDLE_GAPS,
    Kind.PYTHON_BOUND,
    Kind.CLIENT_LIMITED,
    Kind.NETWORK_PAYLOAD,
    Kind.CLOCKS,
    Kind.CPU_STARVED,
    Kind.COLD_START,
    Kind.BURSTY_ARRIVALS,
    Kind.INVALID_MEASUREMENT,
}
"""Classes whose evidence the server has by itself; copies that take as long as computing are among them if no copy
was pageable."""


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.value)
def test_the_own_fault_is_confirmed(kind):
    finding = RULES[kind](FAULTS[kind]())
    assert (finding.kind, finding.verdict) == (kind, Verdict.CONFIRMED)


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.value)
@pytest.mark.parametrize("snapshot", [healthy(), saturated()], ids=["room", "saturated"])
def test_nothing_is_confirmed_on_a_healthy_server(kind, snapshot):
    assert RULES[kind](snapshot).verdict is not Verdict.CONFIRMED


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.value)
def test_a_healthy_server_with_every_probe_run_is_refuted_everything(kind):
    assert RULES[kind](healthy()).verdict is Verdict.REFUTED


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.value)
def test_without_data_nothing_is_said(kind):
    finding = RULES[kind](bare())
    if kind in DECIDED_WITHOUT_DATA:
        assert finding.verdict is Verdict.REFUTED
        return
    assert finding.verdict is Verdict.UNVERIFIED
    assert finding.missing
    assert all(missing.what and missing.probe for missing in finding.missing)


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.value)
def test_what_no_probe_told_is_confirmed_only_where_the_server_sees_it_by_itself(kind):
    finding = RULES[kind](replace(FAULTS[kind](), probes=ProbeFigures()))
    if kind in PASSIVE or kind is Kind.COPY_BANDWIDTH:
        assert finding.verdict is Verdict.CONFIRMED
    else:
        assert finding.verdict is Verdict.UNVERIFIED
        assert finding.missing


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.value)
def test_a_model_on_the_cpu_has_none_of_the_gpus_faults(kind):
    spoilt = FAULTS[kind]()
    snapshot = replace(
        spoilt,
        model=replace(spoilt.model, backend="onnxruntime"),
        gpu=None,
        device=DeviceFigures(lanes=spoilt.device.lanes),
    )
    verdict = RULES[kind](snapshot).verdict
    if kind in GPU_ALONE:
        assert verdict is Verdict.REFUTED
    else:
        assert verdict is Verdict.CONFIRMED
    assert MODEL.backend == "tensorrt"

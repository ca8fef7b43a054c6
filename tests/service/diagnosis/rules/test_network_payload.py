"""The way of the bytes, told from a late event loop and from a busy client."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.network_payload import examine
from service.telemetry.snapshot_load import ClientFigures, HostFigures, Stage
from tests.doubles.faults import network_payload
from tests.doubles.snapshots import healthy, requests, stations

FAR = ClientFigures(latency_mean_s=3e-3, cpu_busy_ratio=0.3)


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(network_payload(), Verdict.CONFIRMED, "reading and sending take 61.2 %", id="long bodies"),
        pytest.param(healthy(client=FAR), Verdict.CONFIRMED, "the client waits 50.0 % longer", id="far away"),
        pytest.param(
            healthy(client=replace(FAR, cpu_busy_ratio=0.95)), Verdict.REFUTED, "11.3 %", id="the client is busy"
        ),
        pytest.param(healthy(client=None), Verdict.REFUTED, "11.3 %", id="short bodies"),
        pytest.param(
            replace(network_payload(), stations=stations(event_loop=0.9)),
            Verdict.REFUTED,
            "loop is late",
            id="loaded loop",
        ),
        pytest.param(
            replace(network_payload(), host=HostFigures(loop_lag_p99_s=20e-3)), Verdict.REFUTED, "late", id="late loop"
        ),
        pytest.param(healthy(requests=requests(stages={})), Verdict.UNVERIFIED, "not recorded", id="no stages"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_at_most_the_way():
    gain = examine(network_payload()).gain
    assert (gain.low, gain.value) == (0.0, pytest.approx(2.1e-3 / network_payload().latency_s))
    assert examine(healthy(client=FAR)).gain.value == pytest.approx(1.0)


def test_payload_and_bandwidth_are_told_where_they_are_known():
    told = {evidence.name: evidence.value for evidence in examine(healthy()).evidence}
    assert told["payload per request"] == pytest.approx(154_000)
    assert told["bandwidth of the network interfaces used"] == pytest.approx(0.12)
    silent = examine(healthy(requests=requests(body_bytes_mean=None))).evidence
    assert "payload per request" not in {evidence.name for evidence in silent}
    assert Stage.READ.value == "read"

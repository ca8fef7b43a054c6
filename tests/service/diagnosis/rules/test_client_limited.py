"""Clients: a closed loop is told from a quiet server, and a loaded server from both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.buckets import Bucket
from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.client_limited import examine
from service.telemetry.snapshot_load import ClientFigures, HostFigures, Stage
from tests.doubles.faults import client_limited, saturated
from tests.doubles.snapshots import around, bare, bucket_use, healthy, probes, requests, stations

CLOSED = client_limited()
LATE = HostFigures(loop_lag_p99_s=0.1)
WAITING = replace(
    CLOSED,
    host=LATE,
    requests=requests(
        {Stage.BACKLOG: 0.0, Stage.COMPUTE: 0.4e-3, Stage.COMPLETE: 1e-3}, count=40_000, in_flight_std=0.1
    ),
)

STARVED = replace(
    CLOSED,
    stations=stations(40_000, thread_pool=0.1, device=0.2, event_loop=0.1),
    requests=requests({Stage.PREPARE: 15e-3, Stage.BACKLOG: 0.0}, count=40_000, in_flight_std=0.1),
)
"""Ten requests in a pool of eight threads, which together get a tenth of eight cores."""


BATCHING = healthy(
    requests=requests({Stage.BACKLOG: 0.1e-3}, count=300_000, in_flight_std=0.5),
    stations=stations(300_000, event_loop=0.2, device=0.7, thread_pool=0.01, h2d=0.05),
    buckets=(bucket_use(Bucket(4), 75_000, 300_000),),
    client=ClientFigures(concurrency=6),
)
"""A closed loop whose batches of four keep the device busy for 0.7 of the time: of full ones it could make far more."""


def in_flight(std: float | None, client: ClientFigures | None = None):
    return replace(CLOSED, client=client, requests=replace(CLOSED.requests, in_flight_std=std))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(CLOSED, Verdict.CONFIRMED, "requests are in flight where", id="the client says so"),
        pytest.param(in_flight(0.1), Verdict.CONFIRMED, "requests are in flight where", id="constant number"),
        pytest.param(
            in_flight(1.0, ClientFigures(cpu_busy_ratio=0.97)), Verdict.CONFIRMED, "in flight", id="client out of CPU"
        ),
        pytest.param(in_flight(1.0), Verdict.REFUTED, "arrive by themselves", id="as random as Poisson"),
        pytest.param(
            in_flight(0.1, ClientFigures(cpu_busy_ratio=0.3)), Verdict.REFUTED, "arrive by themselves", id="open loop"
        ),
        pytest.param(in_flight(None), Verdict.UNVERIFIED, "whether its clients wait", id="variance not known"),
        pytest.param(saturated(), Verdict.REFUTED, "device is 87.8 % loaded", id="loaded"),
        pytest.param(
            replace(CLOSED, requests=replace(CLOSED.requests, in_flight_mean=30.0)),
            Verdict.REFUTED,
            "which is enough",
            id="beyond the knee",
        ),
        pytest.param(
            replace(CLOSED, probes=probes(http_rows_per_s=around(1_000))), Verdict.REFUTED, "is enough", id="near P10"
        ),
        pytest.param(
            replace(CLOSED, costs_s={}, probes=probes(lane_rates={}), stations=stations(52_000, device=0.9)),
            Verdict.UNVERIFIED,
            "costs of full batches",
            id="busy, perhaps with small batches",
        ),
        pytest.param(
            replace(STARVED, probes=probes(http_rows_per_s=None)),
            Verdict.UNVERIFIED,
            "keeps them from cores",
            id="starved",
        ),
        pytest.param(STARVED, Verdict.CONFIRMED, "in flight", id="starved, and a probe saw the server do more"),
        pytest.param(
            replace(WAITING, probes=probes(http_rows_per_s=None)), Verdict.UNVERIFIED, "a late event loop", id="held up"
        ),
        pytest.param(WAITING, Verdict.CONFIRMED, "in flight", id="held up, but P10 saw it do more"),
        pytest.param(
            replace(CLOSED, host=LATE, probes=probes(http_rows_per_s=None)),
            Verdict.CONFIRMED,
            "in flight",
            id="late alone",
        ),
        pytest.param(
            replace(
                CLOSED,
                stations=stations(52_000, event_loop=0.55, device=0.36),
                host=HostFigures(loop_lag_p99_s=0.1, loop_wait_ratio=0.4),
                probes=probes(http_rows_per_s=None),
            ),
            Verdict.REFUTED,
            "works or waits for a core",
            id="others take its core",
        ),
        pytest.param(BATCHING, Verdict.CONFIRMED, "requests are in flight where", id="the device batches what waits"),
        pytest.param(
            replace(
                BATCHING, client=ClientFigures(concurrency=64), requests=replace(BATCHING.requests, in_flight_mean=40.0)
            ),
            Verdict.REFUTED,
            "which is enough",
            id="the device batches, enough in flight",
        ),
        pytest.param(bare(), Verdict.UNVERIFIED, "not recorded", id="nothing recorded"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_the_ceiling_that_p10_measured():
    gain = examine(CLOSED).gain
    assert (gain.label, gain.value) == (GainLabel.MEASURED, pytest.approx(22_000 / (52_000 / 60) - 1))
    modelled = examine(replace(CLOSED, probes=probes(http_rows_per_s=None))).gain
    assert modelled.label is GainLabel.MODELLED
    assert modelled.low < modelled.value < modelled.high
    assert modelled.high == pytest.approx(1 / 0.05 - 1)


def test_a_healthy_open_loop_is_no_fault():
    assert examine(healthy()).verdict is Verdict.REFUTED

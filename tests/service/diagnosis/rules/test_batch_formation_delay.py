"""Formation: the wait for company on a device with room, and the replay that may contradict."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.buckets import Bucket
from service.diagnosis.finding import Verdict
from service.diagnosis.rules.batch_formation_delay import examine
from service.telemetry.snapshot_load import Arrival, Stage
from tests.doubles.faults import arrivals, batch_formation_delay, saturated
from tests.doubles.snapshots import MODEL, cost_s, probes, requests, stations

DELAYED = replace(MODEL, max_queue_delay_s=4e-3)


def crowd(rate_hz: float = 1200.0, count: int = 600) -> tuple[Arrival, ...]:
    """Arrivals that single rows cannot keep up with, at batches that cost the same whatever their size."""
    return tuple(Arrival(index / rate_hz, 1) for index in range(count))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(batch_formation_delay(), Verdict.CONFIRMED, "waiting for company", id="waits for nothing"),
        pytest.param(
            replace(batch_formation_delay(), arrivals=None), Verdict.CONFIRMED, "waiting for company", id="no replay"
        ),
        pytest.param(
            replace(batch_formation_delay(), model=MODEL), Verdict.REFUTED, "max_queue_delay_ms is 0", id="no delay"
        ),
        pytest.param(
            replace(batch_formation_delay(), requests=requests({Stage.FORMATION: 0.1e-3})),
            Verdict.REFUTED,
            "for 6.3 % of the latency",
            id="short wait",
        ),
        pytest.param(
            replace(saturated(), model=DELAYED, requests=requests({Stage.FORMATION: 3e-3}, count=27_000 * 60)),
            Verdict.REFUTED,
            "there the wait fills batches",
            id="loaded device",
        ),
        pytest.param(
            replace(
                batch_formation_delay(),
                costs_s=MappingProxyType({Bucket(1): 2.5e-3, Bucket(2): 2.5e-3, Bucket(16): 2.6e-3}),
                stations=MappingProxyType(stations(60_000, device=0.3)),
                arrivals=arrivals(1_000.0, log=crowd()),
                probes=probes(lane_rates={}),
            ),
            Verdict.REFUTED,
            "a replay of the arrivals without the delay shortens the mean by",
            id="the wait would move",
        ),
        pytest.param(
            replace(batch_formation_delay(), stations={}), Verdict.UNVERIFIED, "not recorded", id="load not known"
        ),
        pytest.param(
            replace(
                batch_formation_delay(),
                stations=MappingProxyType(stations(60_000, device=0.9)),
                costs_s={},
                probes=probes(lane_rates={}),
            ),
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


def test_the_gain_is_the_replayed_one_within_what_was_measured():
    gain = examine(batch_formation_delay()).gain
    assert gain is not None
    share = 3.0e-3 / batch_formation_delay().latency_s
    assert gain.value <= gain.high == pytest.approx(share)
    assert cost_s(1) < cost_s(4)

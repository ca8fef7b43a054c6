"""Batch too small: full batches, a backlog, and what twice the rows would take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.buckets import Bucket
from service.diagnosis.finding import GainMetric, Verdict
from service.diagnosis.rules.batch_too_small import examine
from service.telemetry.snapshot_load import Stage
from tests.doubles.faults import batch_too_small, saturated
from tests.doubles.snapshots import around, bucket_use, cost_s, healthy, probes, requests


def doubled(ratio: float):
    return probes(lane_rates={2: around(2_381)}, other_costs={Bucket(2): around(ratio * cost_s(1))})


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(batch_too_small(), Verdict.CONFIRMED, "only 1.05 times as long", id="cheap doubling"),
        pytest.param(replace(batch_too_small(), probes=doubled(1.49)), Verdict.CONFIRMED, "1.49", id="just cheap"),
        pytest.param(replace(batch_too_small(), probes=doubled(1.5)), Verdict.REFUTED, "1.50 times", id="just not"),
        pytest.param(saturated(), Verdict.REFUTED, "1.90 times as long", id="full device"),
        pytest.param(
            replace(saturated(), buckets=(bucket_use(Bucket(32), 101_250, 27_000 * 60),)),
            Verdict.REFUTED,
            "only 0.0 % of the rows ran in full batches",
            id="half full",
        ),
        pytest.param(
            replace(batch_too_small(), requests=requests({Stage.BACKLOG: 0.0}, count=132_000)),
            Verdict.REFUTED,
            "keeps up",
            id="no backlog",
        ),
        pytest.param(healthy(), Verdict.REFUTED, "keeps up", id="room"),
        pytest.param(
            replace(batch_too_small(), probes=probes(lane_rates={2: around(2_381)}, other_costs={})),
            Verdict.UNVERIFIED,
            "what a batch of 2 takes is not known",
            id="no probe",
        ),
        pytest.param(replace(batch_too_small(), buckets=()), Verdict.UNVERIFIED, "not recorded", id="no batches"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_twice_the_rows_in_their_time():
    finding = examine(batch_too_small())
    assert finding.gain is not None
    assert finding.gain.metric is GainMetric.THROUGHPUT
    assert finding.gain.value == pytest.approx(2 * cost_s(1) / cost_s(2) - 1)
    assert finding.fix is not None
    assert finding.fix.card == "[batching]\nmax_batch_size = 2"

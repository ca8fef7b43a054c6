"""Engines that cannot be captured: any batch is one too many, and the gain is bounded by launching."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.not_capturable import examine
from tests.doubles.faults import graph_miss, launch_bound, not_capturable
from tests.doubles.snapshots import healthy, probes

SPOILT = not_capturable()


def changed(**changes):
    return replace(SPOILT, buckets=(replace(SPOILT.buckets[0], **changes),))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(SPOILT, Verdict.CONFIRMED, "100.0 % of the batches cannot be captured", id="not allowed"),
        pytest.param(
            changed(miss_reason="data_dependent"), Verdict.CONFIRMED, "cannot be captured", id="sizes of data"
        ),
        pytest.param(graph_miss(), Verdict.REFUTED, "could be captured", id="memory"),
        pytest.param(launch_bound(), Verdict.REFUTED, "could be captured", id="switched off"),
        pytest.param(healthy(), Verdict.REFUTED, "could be captured", id="captured"),
        pytest.param(healthy(buckets=()), Verdict.UNVERIFIED, "not recorded", id="no batches"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_at_most_the_launching():
    gain = examine(SPOILT).gain
    assert gain is not None
    assert (gain.label, gain.low) == (GainLabel.UPPER_BOUND, 0.0)
    assert 6 / 7 * (700 + 350) / 1640 <= gain.value <= (700 + 350) / 1640


def test_a_bucket_that_was_probed_all_the_same_is_measured():
    gain = examine(replace(SPOILT, probes=probes())).gain
    assert gain is not None
    assert gain.label is GainLabel.MODELLED
    assert gain.low > 0.0


def test_a_gain_that_nothing_tells_is_left_out():
    assert examine(changed(enqueue=None)).gain is None

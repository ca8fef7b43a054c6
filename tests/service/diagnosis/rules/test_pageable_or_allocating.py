"""Pageable copies and allocations while serving: any is a fault, and its cost is what pinned memory would save."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import GainLabel, Verdict
from service.diagnosis.rules.pageable_or_allocating import examine
from service.telemetry.snapshot_load import Durations
from tests.doubles.faults import pageable_or_allocating
from tests.doubles.snapshots import healthy, probes

BASE = healthy()
ALLOCATING = replace(BASE, device=replace(BASE.device, hot_allocations=9_000, hot_allocation_s=15.0))
SLOW = replace(BASE, buckets=(replace(BASE.buckets[0], h2d=Durations(75_000, 75_000 * 0.5e-3)),))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(pageable_or_allocating(), Verdict.CONFIRMED, "75000 copies were pageable", id="pageable"),
        pytest.param(ALLOCATING, Verdict.CONFIRMED, "allocated 9000 times", id="allocating"),
        pytest.param(BASE, Verdict.REFUTED, "no copy was pageable", id="neither"),
        pytest.param(
            replace(BASE, probes=probes(pinned_h2d_bytes_per_s=None)), Verdict.REFUTED, "no copy", id="speed not known"
        ),
        pytest.param(SLOW, Verdict.UNVERIFIED, "none was counted as pageable", id="slow for another reason"),
        pytest.param(replace(BASE, device=None), Verdict.UNVERIFIED, "not recorded", id="not counted"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_the_excess_over_pinned_memory_and_the_allocations():
    snapshot = pageable_or_allocating()
    pinned_s = 8 * 150_528 / 22e9 + 8 * 4_000 / 8e9
    gain = examine(snapshot).gain
    assert gain is not None
    assert gain.value == pytest.approx((0.5e-3 + 5e-6 - pinned_s) / snapshot.latency_s, rel=1e-6)
    gain = examine(ALLOCATING).gain
    assert gain is not None
    assert gain.value == pytest.approx(15.0 / 75_000 / 1.5e-3)


@pytest.mark.parametrize(
    ("snapshot", "share"),
    [
        pytest.param(
            replace(pageable_or_allocating(), probes=probes(pinned_h2d_bytes_per_s=None)),
            505e-6 / pageable_or_allocating().latency_s,
            id="all of the copies",
        ),
        pytest.param(
            replace(ALLOCATING, buckets=(replace(BASE.buckets[0], h2d=None),)), 0.2e-3 / 1.5e-3, id="the allocations"
        ),
    ],
)
def test_without_a_measure_the_gain_is_an_upper_bound(snapshot, share):
    gain = examine(snapshot).gain
    assert gain is not None
    assert (gain.value, gain.label) == (pytest.approx(share), GainLabel.UPPER_BOUND)


def test_no_batches_no_gain():
    assert examine(replace(ALLOCATING, buckets=())).gain is None

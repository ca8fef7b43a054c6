"""Cold starts: first batches, if they were slow for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.cold_start import examine
from service.telemetry.snapshot_load import Durations
from tests.doubles.faults import EIGHT, cold_start
from tests.doubles.snapshots import MODEL, bucket_use, cost_s, healthy


def first(count: int, each_s: float, batches: int = 75_000, **changes):
    steady_s = (batches - count) * cost_s(8)
    fields = {"cold": Durations(count, count * each_s), "compute": Durations(batches, steady_s + count * each_s)}
    return healthy(buckets=(bucket_use(EIGHT, batches, batches * 8, **(fields | changes)),))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(
            cold_start(), Verdict.CONFIRMED, "40 batches were the first of their kind, up to 357.1", id="slow"
        ),
        pytest.param(first(1, 1.5 * cost_s(8)), Verdict.CONFIRMED, "1 batches", id="just slow"),
        pytest.param(first(1, 1.4 * cost_s(8)), Verdict.REFUTED, "none was slow", id="hardly slow"),
        pytest.param(first(2, 1.0, batches=2), Verdict.CONFIRMED, "2 batches", id="nothing but first ones"),
        pytest.param(healthy(), Verdict.REFUTED, "0 batches", id="none"),
        pytest.param(first(1, 1.0, cold=None), Verdict.UNVERIFIED, "not recorded", id="not counted"),
        pytest.param(
            replace(first(2, 1.0, batches=2), costs_s={}), Verdict.REFUTED, "none was slow", id="steady time not known"
        ),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_what_first_batches_took_beyond_steady_ones():
    gain = examine(cold_start()).gain
    assert gain.value == pytest.approx((8.0 - 40 * cost_s(8)) / 75_000 / cold_start().latency_s)


def test_the_fix_names_dimensions_without_buckets():
    model = replace(MODEL, dim_names=("height", "width"), dim_sizes=((8,), None))
    assert examine(replace(cold_start(), model=model)).fix.card == "[buckets]\nwidth = [ ]  # the sizes that come"
    assert examine(cold_start()).fix.card == ""

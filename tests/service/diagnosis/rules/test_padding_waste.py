"""Padding: counted in time, by what other buckets would have taken."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from service.buckets import Bucket
from service.diagnosis.finding import Verdict
from service.diagnosis.rules.padding_waste import examine
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Arrival, ArrivalFigures, Durations
from tests.doubles.faults import FULL, padding_waste
from tests.doubles.snapshots import MODEL, around, bucket_use, cost_s, healthy, probes


def lengths(served: tuple[int, ...], came: int, batches: int = 10_000, fixed_s: float = 10e-6) -> MetricsSnapshot:
    """A text model whose batches of 8 rows cost by their tokens, and whose texts all have `came` tokens."""
    costs = {Bucket(size, (length,)): fixed_s + 1e-6 * size * length for size in (1, 8) for length in (16, 32, 64, 128)}
    padded = min(length for length in served if length >= came)
    use = bucket_use(
        Bucket(8, (padded,)),
        batches,
        batches * 8,
        useful_volume=batches * 8 * came,
        compute=Durations(batches, batches * costs[Bucket(8, (padded,))]),
    )
    log = tuple(Arrival(index * 1e-4, 1, (came,)) for index in range(400))
    return healthy(
        model=replace(MODEL, batch_sizes=(1, 8), dim_names=("sequence",), dim_sizes=(served,)),
        costs_s=MappingProxyType({bucket: cost for bucket, cost in costs.items() if bucket.dims[0] in served}),
        buckets=(use,),
        arrivals=ArrivalFigures(rows_per_s=10_000.0, gap_cv2=1.0, log=log),
        probes=probes(
            lane_rates={}, other_costs=MappingProxyType({bucket: around(cost) for bucket, cost in costs.items()})
        ),
    )


HALF_FULL = replace(healthy(), buckets=(bucket_use(Bucket(8), 75_000, 300_000),))
"""Padding of half of the rows, which costs little: 4 rows take 0.48 ms and 8 take 0.56."""


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(padding_waste(), Verdict.CONFIRMED, "batch = [8, 32] would give 46.2 %", id="one bucket"),
        pytest.param(lengths((128,), 30), Verdict.CONFIRMED, "sequence = [30] would give", id="one length"),
        pytest.param(lengths((32, 128), 30), Verdict.REFUTED, "is padding", id="lengths that fit"),
        pytest.param(HALF_FULL, Verdict.REFUTED, "14.3 % of the device's time", id="rows that cost nothing"),
        pytest.param(healthy(), Verdict.REFUTED, "0.0 % of what is computed is padding", id="full"),
        pytest.param(
            lengths((128,), 30, fixed_s=0.1), Verdict.REFUTED, "padding costs 0.8 %", id="tokens that cost nothing"
        ),
        pytest.param(
            replace(padding_waste(), probes=probes(other_costs={})),
            Verdict.UNVERIFIED,
            "what smaller batches would take",
            id="costs of smaller ones not known",
        ),
        pytest.param(
            replace(padding_waste(), buckets=(bucket_use(FULL, 45_000, 360_000, useful_volume=None),)),
            Verdict.UNVERIFIED,
            "not recorded",
            id="sizes not recorded",
        ),
        pytest.param(healthy(buckets=()), Verdict.UNVERIFIED, "not recorded", id="no batches"),
        pytest.param(
            replace(lengths((128,), 30), arrivals=None), Verdict.REFUTED, "no other set", id="lengths not recorded"
        ),
        pytest.param(
            replace(lengths((128,), 30), model=replace(MODEL, dim_names=("sequence",), dim_sizes=(None,))),
            Verdict.REFUTED,
            "no other set",
            id="exact lengths",
        ),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_the_gain_is_the_device_time_that_other_buckets_take():
    finding = examine(padding_waste())
    saved = 1 - cost_s(8) / cost_s(32)
    assert finding.evidence[-1].value == pytest.approx(saved)
    assert finding.gain.value == pytest.approx(saved * (1040 + 350) / 1980)
    assert finding.fix.card == "[buckets]\nbatch = [8, 32]"

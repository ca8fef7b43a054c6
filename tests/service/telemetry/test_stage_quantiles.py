"""Which stages of a window have percentiles, and that these are of its own requests alone."""

from __future__ import annotations

import numpy as np
import pytest

from service.requests import RequestFacts
from service.telemetry.metrics import STAGES
from service.telemetry.snapshot_load import Stage
from service.telemetry.totals import RequestTotals
from service.telemetry.window_load import stage_durations

MS = 1_000_000


def requests(*computes_ms: float, facts: RequestFacts | None = None) -> np.ndarray:
    """Requests of one row that compute so long, and spend a millisecond in every other stage."""
    stages = [[compute_ms * MS if stage == "compute" else MS for stage in STAGES] for compute_ms in computes_ms]
    return np.array([[*spent, *(facts or RequestFacts()), 1] for spent in stages], dtype=np.int64)


def test_percentiles_are_those_of_the_window():
    before = RequestTotals.empty().plus(requests(*[900.0] * 50))
    compute = stage_durations(before, before.plus(requests(*[10.0] * 98, 400.0, 400.0)))[Stage.COMPUTE]
    assert compute.p50_s == pytest.approx(0.010, rel=0.5)
    assert 0.2 < compute.p99_s <= 0.5
    assert compute.mean_s == pytest.approx(0.0178)


@pytest.mark.parametrize(
    ("facts", "without"),
    [
        (RequestFacts(), {Stage.FORMATION}),
        (RequestFacts(formation=MS // 2), {Stage.FORMATION, Stage.BACKLOG}),
        (RequestFacts(lane_wait=MS // 2), {Stage.FORMATION, Stage.BACKLOG, Stage.H2D}),
    ],
)
def test_a_stage_of_two_waits_has_percentiles_where_one_was_nothing(facts, without):
    empty = RequestTotals.empty()
    stages = stage_durations(empty, empty.plus(requests(1.0, 1.0, facts=facts)))
    assert {stage for stage, durations in stages.items() if durations.p99_s is None} == without


def test_a_stage_that_took_no_time_took_none_at_any_percentile():
    empty = RequestTotals.empty()
    compute = stage_durations(empty, empty.plus(requests(0.0, 0.0)))[Stage.COMPUTE]
    assert (compute.mean_s, compute.p50_s, compute.p99_s) == (0.0, 0.0, 0.0)

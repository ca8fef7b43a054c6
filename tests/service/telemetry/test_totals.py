import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.requests import RequestFacts
from service.telemetry.metrics import LANE_STAGES, STAGES
from service.telemetry.totals import (
    BATCH_FACTS,
    BATCH_ROW,
    REQUEST_ROW,
    BatchTotals,
    ExecutionTotals,
    LaneTotals,
    RequestTotals,
    as_rows,
)

NO_BATCH_FACTS = (0,) * len(BATCH_FACTS)
FACTS = RequestFacts(formation=1, lane_wait=2, is_json=1, body_bytes=30, answer_bytes=40, encode=5)


def requests(*rows):
    return as_rows(bytearray(b"".join(REQUEST_ROW.pack(*stages, *FACTS, count) for stages, count in rows)), REQUEST_ROW)


def batches(*rows):
    return as_rows(bytearray(b"".join(BATCH_ROW.pack(*row) for row in rows)), BATCH_ROW)


def batch(*, index=0, size=3, padded_size=4, count=2, lane=0, at=(100, 110, 150, 155), facts=NO_BATCH_FACTS):
    return (index, size, padded_size, count, lane, *at, *facts)


def test_requests_sum_by_stage_and_over_all_stages():
    stages = range(len(STAGES))
    totals = RequestTotals.empty().plus(requests((stages, 2), (stages, 3)))
    assert totals.count == 2
    assert totals.rows == 5
    assert [totals.stage_ns(stage) for stage in STAGES] == [2 * stage for stage in stages]
    assert totals.duration_ns == 2 * sum(stages)


def test_folding_a_request_leaves_its_row_alone():
    rows = requests((range(len(STAGES)), 7))
    RequestTotals.empty().plus(rows)
    assert rows[0, -1] == 7


def test_facts_of_requests_are_summed():
    stages = range(len(STAGES))
    totals = RequestTotals.empty().plus(requests((stages, 2), (stages, 3)))
    assert RequestFacts(*totals.facts.tolist()) == tuple(2 * value for value in FACTS)


def test_whole_durations_are_counted_finely():
    rows = requests(([1_000_000, *[0] * (len(STAGES) - 1)], 1), ([0, 1_040_000, *[0] * (len(STAGES) - 2)], 1))
    fine = RequestTotals.empty().plus(rows).fine
    filled = np.flatnonzero(fine.counts[0])
    assert fine.count() == 2
    assert len(filled) == 2 or fine.counts[0][filled].tolist() == [2]
    assert fine.bounds[filled[0] - 1] < 1_000_000 <= fine.bounds[filled[0]]


def test_facts_of_batches_by_bucket_and_time_of_the_cold_ones():
    cold, warm = (5, 1, 2, 3, 4, 1, 10, 20, 30, 40), (7, *[0] * 9)
    totals = BatchTotals.empty().plus(batches(batch(index=1, facts=cold), batch(index=1, facts=warm)))
    totals = totals.plus(batches(batch(index=0, facts=warm)))
    assert totals.bucket_facts.tolist() == [list(warm), [12, 1, 2, 3, 4, 1, 10, 20, 30, 40]]
    assert totals.bucket_cold_ns.tolist() == [0, 40]


def test_time_of_computing_is_the_union_over_lanes():
    rows = [batch(lane=0, at=(0, 10, 30, 31)), batch(lane=1, at=(0, 20, 40, 41)), batch(lane=0, at=(0, 50, 60, 61))]
    totals = BatchTotals.empty().plus(batches(*rows)).plus(batches(batch(lane=1, at=(0, 55, 75, 80))))
    assert totals.computing == LaneTotals(30 + 10 + 15, 75)


def test_batches_by_bucket():
    totals = BatchTotals.empty().plus(batches(batch(index=1, size=3, padded_size=4)))
    totals = totals.plus(batches(batch(index=1, size=1, padded_size=4), batch(index=2, size=8, padded_size=8)))
    assert totals.bucket_dispatches.tolist() == [0, 2, 1]
    assert totals.bucket_rows.tolist() == [0, 4, 8]
    assert totals.bucket_padded_rows.tolist() == [0, 8, 8]


def test_time_in_each_stage_by_bucket():
    totals = BatchTotals.empty().plus(batches(batch(index=1, at=(100, 110, 150, 155))))
    totals = totals.plus(batches(batch(index=1, at=(200, 201, 203, 206)), batch(index=0, at=(0, 7, 8, 10))))
    assert totals.bucket_stages_ns.tolist() == [[7, 1, 2], [11, 42, 8]]


def test_the_stages_of_a_lane_are_stages_of_a_request():
    assert STAGES[STAGES.index("h2d") : STAGES.index("d2h") + 1] == LANE_STAGES


def test_fewer_buckets_than_before_keep_the_former_counts():
    totals = BatchTotals.empty().plus(batches(batch(index=2))).plus(batches(batch(index=0)))
    assert totals.bucket_dispatches.tolist() == [1, 0, 1]


def test_batch_histograms():
    totals = BatchTotals.empty().plus(batches(batch(size=3, padded_size=4, count=2), batch(size=8, padded_size=8)))
    assert totals.count == 2
    assert totals.sizes.sums == (11,)
    assert totals.request_counts.sums == (4,)
    assert totals.fill_ratios.sums == (1.75,)


def test_executions_by_size():
    totals = BatchTotals.empty().plus(batches(batch(size=3, at=(0, 10, 50, 55)), batch(size=1, at=(0, 1, 2, 3))))
    totals = totals.plus(batches(batch(size=3, at=(60, 71, 112, 120))))
    assert totals.executions == {3: ExecutionTotals(2, 21, 81, 13), 1: ExecutionTotals(1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("intervals", "busy_ns"),
    [
        pytest.param([(10, 20)], 10, id="one"),
        pytest.param([(10, 20), (30, 45)], 25, id="apart"),
        pytest.param([(10, 20), (20, 30)], 20, id="adjoining"),
        pytest.param([(10, 20), (15, 30)], 20, id="overlapping"),
        pytest.param([(10, 30), (15, 20), (25, 40)], 30, id="one inside another"),
    ],
)
@pytest.mark.parametrize("is_one_fold", [True, False])
def test_a_lane_is_busy_for_the_union_of_its_batches(intervals, busy_ns, is_one_fold):
    rows = [batch(lane=1, at=(start, start, end, end)) for start, end in intervals]
    totals = BatchTotals.empty()
    for chunk in [rows] if is_one_fold else [[row] for row in rows]:
        totals = totals.plus(batches(*chunk))
    assert totals.lanes == {1: LaneTotals(busy_ns, max(end for _, end in intervals))}


def test_lanes_are_separate():
    rows = [batch(lane=lane, at=(0, 0, 10 + lane, 10 + lane)) for lane in (0, 1, 5)]
    totals = BatchTotals.empty().plus(batches(*rows))
    assert {lane: lane_totals.busy_ns for lane, lane_totals in totals.lanes.items()} == {0: 10, 1: 11, 5: 15}


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=20
    ),
    st.integers(0, 20),
)
def test_where_the_rows_are_cut_does_not_matter(specs, cut):
    now, rows = 0, []
    for index, size, lane, duration in specs:
        now += duration
        rows.append(batch(index=index, size=size, padded_size=8, lane=lane, at=(now - duration, now - 1, now, now)))
    whole = BatchTotals.empty().plus(batches(*rows))
    parts = BatchTotals.empty().plus(batches(*rows[:cut])).plus(batches(*rows[cut:]))
    assert parts.executions == whole.executions
    assert parts.lanes == whole.lanes
    assert np.array_equal(parts.bucket_rows, whole.bucket_rows)
    assert parts.sizes.cumulative() == whole.sizes.cumulative()

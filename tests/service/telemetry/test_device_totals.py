from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket
from service.device_figures import GraphMiss, LaneFigures, MemoryOwner, MissReason
from service.telemetry.device_totals import (
    NO_TOTALS,
    DeviceTotals,
    Direction,
    device_bytes,
    graphs_missing,
)

SMALL, LARGE = Bucket(1), Bucket(8, (32,))
CPU = LaneFigures()

counts = st.dictionaries(st.sampled_from([SMALL, LARGE]), st.integers(0, 100))
lanes = st.builds(
    LaneFigures,
    replays=counts,
    eager_runs=counts,
    h2d_bytes=st.integers(0, 100),
    d2h_bytes=st.integers(0, 100),
    allocations=st.integers(0, 100),
    allocation_ns=st.integers(0, 100),
)


def test_lanes_add_up():
    totals = DeviceTotals.of(
        [
            LaneFigures(replays={SMALL: 3, LARGE: 0}, eager_runs={SMALL: 0, LARGE: 2}, h2d_bytes=10, d2h_bytes=1),
            LaneFigures(
                replays={SMALL: 4, LARGE: 0},
                eager_runs={SMALL: 0, LARGE: 5},
                h2d_bytes=20,
                d2h_bytes=2,
                allocations=3,
                allocation_ns=40,
            ),
        ]
    )
    assert totals.replays == {SMALL: 7, LARGE: 0}
    assert totals.eager_runs == {SMALL: 0, LARGE: 7}
    assert totals.copied_bytes == {Direction.H2D: 30, Direction.D2H: 3}
    assert (totals.allocations, totals.allocation_ns) == (3, 40)


def test_lanes_on_the_cpu_have_nothing_to_tell():
    assert DeviceTotals.of([CPU, CPU]) == NO_TOTALS
    assert device_bytes([CPU], 0) == {}
    assert graphs_missing([CPU]) == {}


def test_a_lane_that_has_copied_nothing_yet_is_shown_with_zero():
    totals = DeviceTotals.of([LaneFigures(replays={SMALL: 0})])
    assert totals.copied_bytes == {Direction.H2D: 0, Direction.D2H: 0}


@given(st.lists(lanes, max_size=4), st.lists(lanes, max_size=4))
def test_totals_of_all_lanes_are_the_sum_of_any_division(one, other):
    assert DeviceTotals.of([*one, *other]) == DeviceTotals.of(one).plus(DeviceTotals.of(other))


def test_graphs_that_miss_are_counted_by_reason_and_bucket():
    data, memory = GraphMiss(MissReason.DATA_DEPENDENT, "words"), GraphMiss(MissReason.MEMORY_BUDGET, "others")
    missing = graphs_missing(
        [LaneFigures(graph_misses={SMALL: data}), LaneFigures(graph_misses={SMALL: data, LARGE: memory})]
    )
    assert missing == {MissReason.DATA_DEPENDENT: {SMALL: 2}, MissReason.MEMORY_BUDGET: {LARGE: 1}}


def test_memory_by_owner_with_what_lanes_share():
    lane = LaneFigures(device_bytes={MemoryOwner.SCRATCH: 5, MemoryOwner.GRAPHS: 7})
    assert device_bytes([lane, lane], 100) == {
        MemoryOwner.WEIGHTS: 100,
        MemoryOwner.SCRATCH: 10,
        MemoryOwner.GRAPHS: 14,
    }

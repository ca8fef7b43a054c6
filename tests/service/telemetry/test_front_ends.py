"""What front ends in processes of their own have counted."""

from __future__ import annotations

from service.telemetry.front_ends import ENGINE, FrontEnds


def test_counts_add_up_by_life():
    front_ends = FrontEnds()
    one, other = front_ends.begin(0, restarts=0), front_ends.begin(1, restarts=0)
    front_ends.count(one, 10, [5, 7], held_bytes=4096)
    kept = front_ends.moments()
    front_ends.count(one, 20, [], held_bytes=0)
    front_ends.count(other, 1, [3], held_bytes=8192)
    first, second = front_ends.moments()
    assert (first.index, first.loop_cpu_ns, first.loop_lag.count(), first.loop_lag.sums[0]) == (0, 30, 2, 12)
    assert (second.index, second.loop_cpu_ns, second.loop_lag.count()) == (1, 1, 1)
    assert (first.held_bytes, second.held_bytes) == (0, 8192), "what is held is no count"
    assert (kept[0].loop_cpu_ns, kept[0].held_bytes) == (10, 4096), "a moment that was taken stays as it is"


def test_one_that_is_gone_is_forgotten_and_never_comes_back():
    front_ends = FrontEnds()
    gone = front_ends.begin(0, restarts=0)
    front_ends.end(gone)
    front_ends.end(gone)
    front_ends.count(gone, 10, [1], held_bytes=1)
    assert front_ends.moments() == ()
    assert front_ends.begin(0, restarts=1) != gone


def test_restarts_outlive_whoever_was_started_again():
    front_ends = FrontEnds()
    assert not front_ends.restarts
    front_ends.started(ENGINE, 1)
    front_ends.begin(0, restarts=0)
    front_ends.end(front_ends.begin(1, restarts=2))
    kept = front_ends.restarts
    front_ends.begin(1, restarts=3)
    assert front_ends.restarts == {"engine": 1, "front_end_0": 0, "front_end_1": 3}
    assert kept["front_end_1"] == 2

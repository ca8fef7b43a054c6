"""What front ends in processes of their own have counted."""

from __future__ import annotations

from service.telemetry.front_ends import FrontEnds


def test_counts_add_up_by_life():
    front_ends = FrontEnds()
    one, other = front_ends.begin(), front_ends.begin()
    front_ends.count(one, 10, [5, 7])
    kept = front_ends.moments()
    front_ends.count(one, 20, [])
    front_ends.count(other, 1, [3])
    first, second = front_ends.moments()
    assert (first.loop_cpu_ns, first.loop_lag.count(), first.loop_lag.sums[0]) == (30, 2, 12)
    assert (second.loop_cpu_ns, second.loop_lag.count()) == (1, 1)
    assert kept[0].loop_cpu_ns == 10, "a moment that was taken stays as it is"


def test_one_that_is_gone_is_forgotten_and_never_comes_back():
    front_ends = FrontEnds()
    gone = front_ends.begin()
    front_ends.end(gone)
    front_ends.end(gone)
    front_ends.count(gone, 10, [1])
    assert front_ends.moments() == ()
    assert front_ends.begin() != gone

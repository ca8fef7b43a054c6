"""Whatever the steps, the stages of a request are their sums, and add up to its whole time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.api.step_stamps import add_step, begin_steps, call_timings
from service.requests import StageTimings, Stamps

DURATIONS = st.tuples(*[st.integers(0, 10**9)] * 6)
"""Of one call: queue, dispatch, h2d, compute, d2h, complete."""
STEPS = st.lists(st.tuples(st.integers(0, 10**9), st.lists(DURATIONS, min_size=1, max_size=4)), max_size=4)
"""Per step the time since the one before it, and its calls."""


def call_stamps(handed_ns: int, durations: tuple[int, ...]) -> Stamps:
    stamps = Stamps(1)
    stamps.read, stamps.parsed, stamps.prepared = 2, 3, handed_ns
    moments = ("dispatched", "started", "copied_in", "computed", "copied_out", "completed")
    now_ns = handed_ns
    for moment, duration in zip(moments, durations, strict=True):
        now_ns += duration
        setattr(stamps, moment, now_ns)
    return stamps


@given(STEPS)
def test_stages_are_sums_over_the_steps(steps):
    stamps = Stamps(10)
    stamps.read, stamps.parsed = 20, 30
    begin_steps(stamps, 100)
    now_ns, between_ns, slowest = 100, 0, []
    for wait_ns, calls in steps:
        now_ns += wait_ns
        between_ns += wait_ns
        add_step(stamps, [call_stamps(now_ns, durations) for durations in calls])
        slowest.append(max(calls, key=sum))
        now_ns += max(map(sum, calls))
    stamps.rendered, stamps.sent = now_ns + 5, now_ns + 6
    timings = StageTimings.from_stamps(stamps)
    assert sum(timings) == stamps.sent - stamps.received
    assert timings.prepare == 70 + between_ns
    assert stamps.completed == now_ns
    assert min(timings) >= 0
    assert sum(timings[3:9]) == sum(map(sum, slowest))


def test_a_step_is_as_slow_as_its_slowest_call():
    stamps = Stamps(0)
    begin_steps(stamps, 100)
    add_step(stamps, [call_stamps(100, (1, 2, 3, 4, 5, 6)), call_stamps(100, (10, 0, 0, 20, 0, 0))])
    assert StageTimings.from_stamps(stamps)[3:9] == (10, 0, 0, 20, 0, 0)


def test_a_call_alone_came_prepared_and_is_not_rendered():
    assert call_timings(call_stamps(50, (1, 2, 3, 4, 5, 6))) == (0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0)

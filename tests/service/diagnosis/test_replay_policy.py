"""The replayed queue decides as the server's policy does: the same requests, served by both."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching.pending import Pending
from service.batching.policy import Dispatch, Rules, WaitUntil, next_action
from service.buckets import Home
from service.diagnosis.replay import ReplayPolicy, replay
from service.telemetry.snapshot_load import Arrival
from tests.doubles.requests import NO_FUTURE, linear_costs, make_request, make_spec

NS = 1_000_000_000
PATIENT_NS = 10**15


def served_by_the_policy(arrivals: list[Arrival], rules: Rules, lanes: int) -> float:
    """Mean seconds from arrival to the end of the batch."""
    waiting: list[Pending] = []
    free_ns, ends, moments = [0] * lanes, [], []
    coming = [round(arrival.at_s * NS) for arrival in arrivals]
    index, now = 0, coming[0]
    while index < len(arrivals) or waiting:
        while index < len(arrivals) and coming[index] <= now:
            request = make_request(arrivals[index].rows, deadline_ns=PATIENT_NS)
            work_ns = arrivals[index].rows * rules.costs.row_cost_ns(Home(()), rules.buckets.batch_sizes)
            waiting.append(
                Pending(
                    request, sequence=index, home=Home(()), work_ns=work_ns, queued_ns=coming[index], future=NO_FUTURE
                )
            )
            index += 1
        in_flight = [int(free > now) for free in free_ns]
        action = next_action({Home(()): waiting} if waiting else {}, in_flight, now, rules)
        if isinstance(action, Dispatch):
            end = now + rules.costs.cost_ns(action.bucket)
            free_ns[action.lane_id] = end
            ends.extend((end, item.queued_ns) for item in action.items)
            waiting = [item for item in waiting if item not in action.items]
            continue
        moments = [free for free in free_ns if free > now] + coming[index : index + 1]
        if isinstance(action, WaitUntil):
            moments.append(action.at_ns)
        heapq.heapify(moments)
        now = moments[0]
    return sum(end - queued for end, queued in ends) / len(ends) / NS


@settings(max_examples=60, deadline=None)
@given(
    log=st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 3)), min_size=1, max_size=40),
    lanes=st.integers(1, 2),
    delay_ms=st.sampled_from([0, 2]),
    fixed_us=st.sampled_from([50.0, 1000.0, 5000.0]),
)
def test_both_serve_the_same_arrivals_alike(log, lanes, delay_ms, fixed_us):
    spec = make_spec(max_batch_size=8)
    table = linear_costs(spec, fixed_us=fixed_us, row_us=200.0)
    rules = Rules(spec.buckets, table, max_queue_delay_ns=delay_ms * 1_000_000, lane_depth=1)
    arrivals = [Arrival(at * 10e-6, rows) for at, rows in sorted(log)]
    policy = ReplayPolicy(
        costs_s={bucket: cost / NS for bucket, cost in table.measured_ns.items()},
        lanes=lanes,
        max_delay_s=delay_ms / 1000,
    )
    result = replay(arrivals, policy)
    assert result is not None
    assert result.mean_s == pytest.approx(served_by_the_policy(arrivals, rules, lanes), rel=1e-6)

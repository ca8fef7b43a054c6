"""The replayed queue: by hand, against closed forms, and against what must hold of any queue."""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.buckets import Bucket
from service.diagnosis.queueing import AffineCost, affine_cost, mean_latency_s
from service.diagnosis.replay import ReplayPolicy, replay
from service.telemetry.snapshot_load import Arrival

ONE = ReplayPolicy(costs_s=MappingProxyType({Bucket(1): 1.0}))
UP_TO_FOUR = ReplayPolicy(costs_s=MappingProxyType({Bucket(1): 1.0, Bucket(2): 1.1, Bucket(4): 1.3}))


def at(*times_s: float, rows: int = 1) -> list[Arrival]:
    return [Arrival(time_s, rows) for time_s in times_s]


@pytest.mark.parametrize(
    ("policy", "arrivals", "mean_s", "rows_per_batch"),
    [
        pytest.param(ONE, at(0.0, 5.0), 1.0, 1.0, id="nobody waits"),
        pytest.param(ONE, at(0.0, 0.0, 0.0), 2.0, 1.0, id="one after another"),
        pytest.param(replace(ONE, lanes=3), at(0.0, 0.0, 0.0), 1.0, 1.0, id="side by side"),
        pytest.param(replace(ONE, lanes=3, lane_slowdown=2.0), at(0.0, 0.0, 0.0), 2.0, 1.0, id="lanes share a device"),
        pytest.param(UP_TO_FOUR, at(0.0, 0.0, 0.0, 0.0), 1.3, 4.0, id="all that waits joins"),
        pytest.param(UP_TO_FOUR, at(0.0, 0.1, 0.1), (1.0 + 2 * 2.0) / 3, 1.5, id="company comes too late"),
        pytest.param(replace(UP_TO_FOUR, max_delay_s=0.5), at(0.0, 0.1, 0.2), 5.1 / 3, 3.0, id="waits for company"),
        pytest.param(replace(UP_TO_FOUR, max_delay_s=0.5), at(0.0, 0.0, 0.0, 0.0), 1.3, 4.0, id="full, so at once"),
        pytest.param(UP_TO_FOUR, at(0.0, rows=3), 1.3, 3.0, id="rows of one request"),
    ],
)
def test_by_hand(policy, arrivals, mean_s, rows_per_batch):
    result = replay(arrivals, policy)
    assert result is not None
    assert result.mean_s == pytest.approx(mean_s)
    assert result.rows_per_batch == pytest.approx(rows_per_batch)


def test_a_smaller_bucket_is_taken_where_it_does_more_per_second():
    policy = ReplayPolicy(costs_s=MappingProxyType({Bucket(1): 1.0, Bucket(2): 1.1, Bucket(8): 4.0}))
    result = replay(at(0.0, 0.0, 0.0), policy)
    assert result is not None
    assert result.mean_s == pytest.approx((1.1 + 1.1 + 2.1) / 3)


def test_what_fits_no_bucket_is_counted():
    result = replay([Arrival(0.0, 1), Arrival(0.0, 2)], ONE)
    assert result is not None
    assert (result.requests, result.unserved) == (1, 1)
    assert replay([Arrival(0.0, 2)], ONE) is None


def test_lengths_join_within_their_padded_length_alone():
    costs = {Bucket(size, (length,)): length * (1.0 + 0.1 * size) for size in (1, 2) for length in (10, 20)}
    policy = ReplayPolicy(costs_s=MappingProxyType(costs))
    arrivals = [Arrival(0.0, 1, (7,)), Arrival(0.0, 1, (15,)), Arrival(0.0, 1, (10,))]
    result = replay(arrivals, policy)
    assert result is not None
    assert result.mean_s == pytest.approx((2 * 12.0 + 12.0 + 22.0) / 3)


def test_a_later_group_is_not_held_up_by_an_older_one_that_waits():
    costs = {Bucket(size, (length,)): 1.0 for size in (1, 2) for length in (10, 20)}
    policy = ReplayPolicy(costs_s=MappingProxyType(costs), max_delay_s=5.0, lanes=1)
    arrivals = [Arrival(0.0, 1, (10,)), Arrival(0.5, 1, (20,)), Arrival(0.5, 1, (20,))]
    result = replay(arrivals, policy)
    assert result is not None
    assert result.mean_s == pytest.approx((1.0 + 1.0 + 6.0) / 3)


LOG = st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 4)), min_size=1, max_size=60)


@settings(max_examples=60)
@given(log=LOG, lanes=st.integers(1, 3), delay_s=st.sampled_from([0.0, 0.3]))
def test_everything_is_served_once_and_no_sooner_than_it_can(log, lanes, delay_s):
    arrivals = [Arrival(at_s, rows) for at_s, rows in sorted(log)]
    policy = replace(UP_TO_FOUR, lanes=lanes, max_delay_s=delay_s)
    result = replay(arrivals, policy)
    assert result is not None
    assert result.requests == len(arrivals)
    assert result.mean_s >= 1.0 - 1e-9
    assert result.p50_s <= result.p99_s
    assert 1.0 <= result.rows_per_batch <= 4.0
    assert 0.0 < result.busy_ratio <= 1.0 + 1e-9
    assert replay(arrivals, policy) == result


@settings(max_examples=40)
@given(log=LOG)
def test_more_lanes_never_make_a_request_of_one_row_wait_longer(log):
    arrivals = [Arrival(at_s, 1) for at_s, _ in sorted(log)]
    few, many = replay(arrivals, ONE), replay(arrivals, replace(ONE, lanes=2))
    assert few is not None
    assert many is not None
    assert many.mean_s <= few.mean_s + 1e-9


def poisson(rate: float, count: int = 20_000, seed: int = 3) -> list[Arrival]:
    rng, now = random.Random(seed), 0.0
    arrivals = []
    for _ in range(count):
        now += rng.expovariate(rate)
        arrivals.append(Arrival(now, 1))
    return arrivals


def test_a_queue_of_single_rows_is_the_one_with_a_known_mean():
    """Pollaczek and Khinchine: at load 0.6 with constant service the mean is 1 + 0.6 / (2 * 0.4)."""
    result = replay(poisson(0.6), ONE)
    assert result is not None
    assert result.mean_s == pytest.approx(1.75, rel=0.05)


@pytest.mark.parametrize("rate", [200.0, 800.0, 2000.0])
def test_the_closed_form_is_near_the_replay(rate):
    """Batches without a limit: Inoue's bound, which the replay must not pass and must nearly reach."""
    cost = AffineCost(fixed_s=1e-3, row_s=0.25e-3)
    costs = MappingProxyType({Bucket(size): 1e-3 + 0.25e-3 * size for size in range(1, 129)})
    result, bound = replay(poisson(rate), ReplayPolicy(costs_s=costs)), mean_latency_s(rate, cost)
    assert result is not None
    assert bound is not None
    assert 0.9 * bound <= result.mean_s <= 1.03 * bound


def test_a_device_that_cannot_keep_up_has_no_mean():
    assert mean_latency_s(4000.0, AffineCost(1e-3, 0.25e-3)) is None


def test_the_line_through_costs():
    costs = {Bucket(size): 1e-3 + 0.25e-3 * size for size in (1, 2, 8)} | {Bucket(1, (9,)): 7.0}
    line = affine_cost(costs, ())
    assert line is not None
    assert (line.fixed_s, line.row_s) == (pytest.approx(1e-3), pytest.approx(0.25e-3))
    assert affine_cost(costs, (9,)) is None

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.arrivals import MAX_REQUESTS, NS_PER_S, ArrivalPlan, Arrivals, send_offsets_ns
from loadtest.errors import LoadTestError

plans = st.builds(
    ArrivalPlan,
    arrivals=st.sampled_from(Arrivals),
    rate=st.floats(0.5, 2000.0),
    duration_s=st.floats(0.05, 5.0),
    burst_size=st.integers(1, 40),
    seed=st.integers(0, 1000),
)


@given(plans)
def test_times_ascend_within_the_duration_and_repeat(plan: ArrivalPlan) -> None:
    offsets = send_offsets_ns(plan)
    assert offsets == sorted(offsets)
    assert all(0 <= offset < plan.duration_s * NS_PER_S for offset in offsets)
    assert send_offsets_ns(plan) == offsets


def test_constant_times_do_not_drift() -> None:
    offsets = send_offsets_ns(ArrivalPlan(arrivals=Arrivals.CONSTANT, rate=3.0, duration_s=10_000.0))
    assert len(offsets) == 30_000
    assert offsets[:4] == [0, 333_333_333, 666_666_667, 1_000_000_000]
    assert offsets[29_997] == 9_999 * NS_PER_S


@given(st.floats(1.0, 500.0), st.floats(0.1, 10.0))
def test_constant_has_the_asked_number(rate: float, duration_s: float) -> None:
    count = len(send_offsets_ns(ArrivalPlan(arrivals=Arrivals.CONSTANT, rate=rate, duration_s=duration_s)))
    assert abs(count - rate * duration_s) <= 1


@given(st.integers(0, 10_000))
def test_poisson_keeps_the_mean_rate_and_spreads_like_an_exponential(seed: int) -> None:
    offsets = send_offsets_ns(ArrivalPlan(arrivals=Arrivals.POISSON, rate=1000.0, duration_s=4.0, seed=seed))
    assert abs(len(offsets) - 4000) < 6 * math.sqrt(4000)
    gaps = np.diff(offsets)
    assert 0.85 < gaps.std() / gaps.mean() < 1.15


def test_every_seed_counts_also_zero() -> None:
    drawn = {
        tuple(send_offsets_ns(ArrivalPlan(arrivals=Arrivals.POISSON, rate=50.0, duration_s=1.0, seed=seed)))
        for seed in (0, 1, 2)
    }
    assert len(drawn) == 3


@given(st.integers(1, 50), st.floats(1.0, 500.0))
def test_bursts_are_whole_and_as_many_as_the_rate_says(burst_size: int, rate: float) -> None:
    plan = ArrivalPlan(arrivals=Arrivals.BURST, rate=rate, duration_s=2.0, burst_size=burst_size)
    sizes = Counter(send_offsets_ns(plan))
    assert set(sizes.values()) == {burst_size}
    assert abs(len(sizes) - 2.0 * rate / burst_size) <= 1


@pytest.mark.parametrize(
    ("rate", "duration_s", "burst_size", "named"),
    [
        (0.0, 1.0, 1, "rate = 0.0"),
        (-1.0, 1.0, 1, "rate = -1.0"),
        (math.inf, 1.0, 1, "rate = inf"),
        (math.nan, 1.0, 1, "rate = nan"),
        (1.0, 0.0, 1, "duration = 0.0"),
        (1.0, 1.0, 0, "burst size = 0"),
        (MAX_REQUESTS, 1.1, 1, "lower --rate"),
    ],
)
def test_refuses_what_it_cannot_draw(rate: float, duration_s: float, burst_size: int, named: str) -> None:
    plan = ArrivalPlan(arrivals=Arrivals.BURST, rate=rate, duration_s=duration_s, burst_size=burst_size)
    with pytest.raises(LoadTestError, match=named):
        send_offsets_ns(plan)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.probes.intervals import LEAST_ROUNDS, median_interval, median_ratio

samples = st.lists(st.floats(1e-9, 1e9), min_size=LEAST_ROUNDS, max_size=40)


@given(samples)
def test_an_interval_holds_the_median_and_lies_among_the_samples(values: list[float]) -> None:
    interval = median_interval(values)
    assert interval is not None
    assert min(values) <= interval.low <= interval.value <= interval.high <= max(values)
    assert interval.value == float(np.median(values))
    assert median_interval(values) == interval


@given(samples, st.integers(-6, 6))
def test_the_unit_does_not_matter(values: list[float], power: int) -> None:
    plain, scaled = median_interval(values), median_interval([2.0**power * value for value in values])
    assert plain is not None
    assert scaled == plain.scaled(2.0**power)


def test_few_rounds_say_nothing() -> None:
    assert median_interval([1.0] * (LEAST_ROUNDS - 1)) is None
    assert median_interval([]) is None


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    """Of 300 samples of 20 skewed values each; the percentile bootstrap is known to be a little too narrow."""
    rng = np.random.default_rng(7)
    truth = float(np.log(2.0))
    intervals = [median_interval(rng.exponential(1.0, 20).tolist()) for _ in range(300)]
    covered = sum(interval is not None and interval.low <= truth <= interval.high for interval in intervals)
    assert 0.90 <= covered / 300 <= 0.99


def test_what_disturbs_both_sides_of_a_round_is_no_difference() -> None:
    disturbed = [1.0, 1.0, 5.0, 1.0, 9.0, 1.0]
    ratio = median_ratio([2.0 * value for value in disturbed], disturbed)
    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == (2.0, 2.0, 2.0)


def test_sides_of_different_length_are_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        median_ratio([1.0], [])

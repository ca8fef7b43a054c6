"""The dynamic program against every set there is, and the cost curve."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.diagnosis.bucket_sets import CostCurve, best_sizes, total_cost_s


def linear(size: int) -> float:
    return 5.0 + size


COUNTS = st.dictionaries(st.integers(1, 40), st.integers(1, 30), min_size=1, max_size=7)


@given(counts=COUNTS, limit=st.integers(1, 4))
def test_no_set_is_better(counts, limit):
    sizes = best_sizes(counts, linear, limit)
    assert len(sizes) <= limit
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[-1] == max(counts)
    every = [
        (*smaller, max(counts))
        for number in range(min(limit, len(counts)))
        for smaller in combinations(sorted(set(counts) - {max(counts)}), number)
    ]
    least = min(total_cost_s(counts, linear, candidate) for candidate in every)
    assert total_cost_s(counts, linear, sizes) == pytest.approx(least)


def test_by_hand():
    assert best_sizes({1: 3, 2: 100, 10: 100}, linear, 2) == (2, 10)
    assert best_sizes({1: 100, 2: 1, 10: 1}, linear, 2) == (1, 10)
    assert best_sizes({7: 3}, linear, 5) == (7,)


def test_what_no_size_holds_runs_as_it_is():
    assert total_cost_s({4: 2, 20: 1}, linear, (8,)) == 2 * 13.0 + 25.0


@pytest.mark.parametrize(("volume", "cost_s"), [(1, 2.0), (2, 2.0), (3, 3.0), (4, 4.0), (6, 5.0), (8, 6.0), (100, 6.0)])
def test_the_curve_is_straight_between_what_was_measured_and_level_beyond(volume, cost_s):
    curve = CostCurve.of([(4, 4.0), (2, 2.0), (8, 6.0), (8, 5.0)])
    assert curve is not None
    assert curve.at(volume) == pytest.approx(cost_s)
    assert curve.least_volume == 2


def test_nothing_measured_is_no_curve():
    assert CostCurve.of([]) is None

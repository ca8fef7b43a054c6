import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.telemetry.histogram import Histograms

BOUNDS = (10, 20, 50)


@pytest.mark.parametrize(
    ("value", "cumulative"),
    [
        pytest.param(0, [1, 1, 1, 1], id="below the first bound"),
        pytest.param(10, [1, 1, 1, 1], id="a bound is inclusive"),
        pytest.param(11, [0, 1, 1, 1], id="above a bound"),
        pytest.param(50, [0, 0, 1, 1], id="the last bound"),
        pytest.param(51, [0, 0, 0, 1], id="beyond the last bound"),
    ],
)
def test_an_observation_counts_from_its_bound_upwards(value, cumulative):
    histograms = Histograms.empty(BOUNDS).plus(np.array([[value]]))
    assert histograms.cumulative() == cumulative
    assert histograms.sums == (value,)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=5),
        max_size=4,
    )
)
def test_columns_are_separate_and_chunks_do_not_matter(chunks):
    histograms = Histograms.empty(BOUNDS, 2)
    for chunk in chunks:
        histograms = histograms.plus(np.array(chunk, np.int64).reshape(-1, 2))
    rows = [row for chunk in chunks for row in chunk]
    for column in (0, 1):
        values = [row[column] for row in rows]
        expected = [sum(value <= bound for value in values) for bound in (*BOUNDS, np.inf)]
        assert histograms.cumulative(column) == expected
        assert histograms.count(column) == len(values)
        assert histograms.sums[column] == sum(values)


def test_adding_leaves_the_former_value_alone():
    before = Histograms.empty(BOUNDS)
    before.plus(np.array([[15]]))
    assert before.cumulative() == [0, 0, 0, 0]
    assert before.sums == (0,)


def test_sums_outgrow_64_bits():
    histograms = Histograms.empty(BOUNDS)
    for _ in range(3):
        histograms = histograms.plus(np.array([[2**62]]))
    assert histograms.sums == (3 * 2**62,)


def test_fractions():
    histograms = Histograms.empty((0.5, 1.0)).plus(np.array([[0.25], [0.75], [1.0]]))
    assert histograms.cumulative() == [1, 3, 3]
    assert histograms.sums == (2.0,)

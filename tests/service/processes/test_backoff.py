from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.processes.backoff import (
    LEAST_DELAY_S,
    MOST_DELAY_S,
    STEADY_S,
    failures_after,
    restart_delay_s,
)


@pytest.mark.parametrize(
    ("failures", "expected_s"), [(0, 0.1), (1, 0.1), (2, 0.2), (3, 0.4), (6, 3.2), (7, 5.0), (100, 5.0)]
)
def test_each_early_end_doubles_the_delay_up_to_a_bound(failures: int, expected_s: float) -> None:
    assert restart_delay_s(failures) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("failures", "lived_s", "expected"), [(0, 0.0, 1), (4, 29.9, 5), (4, STEADY_S, 0), (0, 100.0, 0)]
)
def test_one_that_lived_long_is_no_early_end(failures: int, lived_s: float, expected: int) -> None:
    assert failures_after(failures, lived_s=lived_s) == expected


@given(st.integers(0, 1 << 40))
def test_delays_are_bounded_and_never_shrink(failures: int) -> None:
    assert LEAST_DELAY_S <= restart_delay_s(failures) <= restart_delay_s(failures + 1) <= MOST_DELAY_S

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.memory import MemorySample, memory_growth


def samples(sizes: list[int | None], pid: int = 7) -> list[MemorySample]:
    return [MemorySample(float(at_s), {} if size is None else {pid: size}) for at_s, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "growth"),
    [
        ([100], 0.0),
        ([100, 110], 0.1),
        ([100] * 10, 0.0),
        ([100, 100, 900, 100, 100, 100, 100, 100, 100, 100], 0.0),
        ([100, 100, 100, *[500] * 9, 105, 105, 900], 0.05),
        ([200, 200, 150, 150, 100, 100], -0.5),
    ],
)
def test_the_middle_of_the_last_samples_is_held_against_that_of_the_first(sizes: list[int], growth: float) -> None:
    (found,) = memory_growth(samples(sizes))
    assert found.growth == pytest.approx(growth)
    assert (found.pid, found.most_bytes, found.is_whole) == (7, max(sizes), True)


@pytest.mark.parametrize("sizes", [[None, 100, 100], [100, 100, None], [100, None, 100]])
def test_a_process_that_was_not_there_all_the_time_is_told(sizes: list[int | None]) -> None:
    (found,) = memory_growth(samples(sizes))
    assert not found.is_whole


def test_processes_are_told_apart() -> None:
    together = [MemorySample(0.0, {2: 10, 1: 10}), MemorySample(1.0, {2: 30, 1: 10})]
    assert [(found.pid, found.growth) for found in memory_growth(together)] == [(1, 0.0), (2, 2.0)]
    assert memory_growth([]) == ()


@given(st.integers(1 << 20, 1 << 40), st.integers(1, 200), st.integers(1, 1 << 20))
def test_a_steady_leak_is_found(first: int, count: int, leak: int) -> None:
    (found,) = memory_growth(samples([first + index * leak for index in range(count)]))
    assert (found.growth > 0) is (count > 1)
    assert found.first_bytes >= first
    assert found.last_bytes <= found.most_bytes

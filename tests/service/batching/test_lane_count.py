from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.lane_count import MIN_BATCHES, MIN_GAIN, WINDOW_NS, items_per_s, knee, representatives
from service.batching.lane_pool import LanePool
from service.buckets import Bucket
from service.errors import ExecutionFailed
from service.units import NS_PER_MS, NS_PER_S
from tests.doubles.paced_backend import PacedBackend
from tests.doubles.requests import make_spec

# ResNet-50 in FP16 on an H200, images per second by lanes: batches of 1, 8 and 32 (shared GPU notes of this project);
# what lies between 2, 4 and 8 lanes is put on a line.
H200 = {
    1: (2405, 14930, 27139),
    2: (3567, 17704, 33258),
    3: (5062, 17863, 33116),
    4: (6558, 18023, 32975),
    5: (7530, 18335, 32625),
    6: (8501, 18647, 32275),
    7: (9473, 18958, 31924),
    8: (10445, 19270, 31574),
}


@pytest.mark.parametrize(
    ("rates", "lanes"),
    [
        pytest.param([(100,)], 1, id="one lane so far"),
        pytest.param([(100,), (200,)], 2, id="the last one paid"),
        pytest.param([(100,), (109,)], 1, id="too little"),
        pytest.param([(100,), (111,)], 2, id="just enough"),
        pytest.param([(100,), (90,), (300,)], 1, id="nobody looks beyond a lane that does not pay"),
        pytest.param([(100, 100, 100), (200, 104, 101)], 1, id="small batches alone do not decide"),
        pytest.param([(100, 100, 100), (104, 104, 150)], 1, id="nor do the largest"),
        pytest.param([(100, 100, 100), (200, 120, 101)], 2, id="two of three do"),
        pytest.param(list(H200.values()), 2, id="ResNet-50 with batches up to 32"),
        pytest.param([row[:1] for row in H200.values()], 8, id="ResNet-50 that does not batch"),
    ],
)
def test_knee(rates: list[tuple[float, ...]], lanes: int) -> None:
    assert knee(rates) == lanes


ROWS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*(st.floats(1, 1e6) for _ in range(width))), min_size=1, max_size=8)
)


@given(ROWS)
def test_every_lane_up_to_the_knee_pays_and_the_next_does_not(rates: list[tuple[float, ...]]) -> None:
    lanes = knee(rates)
    assert 1 <= lanes <= len(rates)
    assert knee(rates[:lanes]) == lanes
    if lanes < len(rates):
        assert knee(rates[: lanes + 1]) == lanes
    scaled = [tuple(1000 * rate for rate in row) for row in rates]
    assert knee(scaled) in {lanes, *range(1, len(rates) + 1)}
    assert all(
        any(after >= before * (1 + MIN_GAIN) * (1 - 1e-9) for before, after in zip(rates[i], rates[i + 1], strict=True))
        for i in range(lanes - 1)
    )


@pytest.mark.parametrize(
    ("buckets", "chosen"),
    [
        ([Bucket(1)], [Bucket(1)]),
        ([Bucket(2), Bucket(1)], [Bucket(1), Bucket(2)]),
        ([Bucket(size) for size in (128, 64, 32, 16, 8, 4, 2, 1)], [Bucket(1), Bucket(16), Bucket(128)]),
        (
            [Bucket(size, dims) for size in (1, 8) for dims in ((64,), (512,))],
            [Bucket(1, (64,)), Bucket(8, (64,)), Bucket(8, (512,))],
        ),
    ],
)
def test_small_middle_and_large_are_measured(buckets: list[Bucket], chosen: list[Bucket]) -> None:
    assert list(representatives(buckets)) == chosen


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_throughput_counts_the_rows_of_all_lanes(lanes: int) -> None:
    backend = PacedBackend(make_spec(max_batch_size=8), {1: 1000.0, 2: 1500.0, 3: 1600.0})
    pool = LanePool(backend, lambda *_: None)
    try:
        pool.grow(lanes)
        rate = items_per_s(pool, backend.spec, Bucket(8), lane_depth=2, clock=backend.clock)
    finally:
        pool.close()
    assert rate == pytest.approx(backend.rates[lanes], rel=0.02)
    assert backend.max_open_count <= 2 * lanes


def test_a_window_holds_few_long_batches() -> None:
    backend = PacedBackend(make_spec(max_batch_size=1), {1: NS_PER_S / (10 * WINDOW_NS)})
    pool = LanePool(backend, lambda *_: None)
    try:
        pool.grow(1)
        items_per_s(pool, backend.spec, Bucket(1), lane_depth=1, clock=backend.clock)
    finally:
        pool.close()
    assert len(backend.batches) == MIN_BATCHES


def test_a_lane_that_fails_ends_the_measurement_and_leaves_no_lane_waiting() -> None:
    backend = PacedBackend(make_spec(max_batch_size=1), {2: NS_PER_S / NS_PER_MS})
    backend.fails_on = lambda request: (
        ExecutionFailed("no memory") if threading.current_thread().name.endswith("-1") else None
    )
    pool = LanePool(backend, lambda *_: None)
    try:
        pool.grow(2)
        with pytest.raises(ExecutionFailed, match="no memory"):
            items_per_s(pool, backend.spec, Bucket(1), lane_depth=1, clock=backend.clock)
    finally:
        pool.close()


def test_a_lane_that_fails_while_it_is_measured_holds_no_batch_afterwards() -> None:
    """One that did would refuse, as long as it lives, all but the first of the batches that it is given later."""
    backend = PacedBackend(make_spec(max_batch_size=1), {1: NS_PER_S / NS_PER_MS})
    answers = iter([None, ExecutionFailed("no memory"), ExecutionFailed("no memory"), None])
    backend.fails_on = lambda request: next(answers)
    pool = LanePool(backend, lambda *_: None)
    try:
        pool.grow(1)
        with pytest.raises(ExecutionFailed, match="no memory"):
            items_per_s(pool, backend.spec, Bucket(1), lane_depth=3, clock=backend.clock)
        assert backend.open_count == 0
    finally:
        pool.close()

"""Spare lanes are kept full for a moment, and closed whatever happens on them."""

from __future__ import annotations

import itertools

import pytest

from service.buckets import Bucket
from service.errors import ExecutionFailed
from service.probes.drive import LEAST_BATCHES, batches_per_s, spare_lanes
from service.runtime.synthetic import synthetic_batch
from service.units import NS_PER_MS
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_spec

SPEC = make_spec(max_batch_size=4)
BATCH = synthetic_batch(SPEC, Bucket(4))


def backend_of(depth: int) -> HeldBackend:
    return HeldBackend(SPEC, clock=lambda: 0, lane_depth=depth, held=False)


def test_the_rate_is_that_from_the_first_end_to_the_last() -> None:
    """The clock moves by a millisecond at every look, and it is looked at once per batch."""
    ticks = itertools.count(step=NS_PER_MS)
    backend = backend_of(2)
    with spare_lanes(backend) as pool:
        pool.grow(1)
        rate = batches_per_s(pool, BATCH, lanes=1, depth=2, duration_ns=20 * NS_PER_MS, clock=lambda: next(ticks))
    assert rate == pytest.approx(1000.0)
    assert backend.max_open_count == 2
    assert backend.open_count == 0
    assert (backend.closed_lanes, backend.is_closed) == (1, False)


def test_a_batch_that_takes_longer_than_the_time_is_run_often_enough_to_have_a_rate() -> None:
    ticks = itertools.count(step=1000 * NS_PER_MS)
    backend = backend_of(1)
    with spare_lanes(backend) as pool:
        pool.grow(2)
        rate = batches_per_s(pool, BATCH, lanes=1, depth=1, duration_ns=1, clock=lambda: next(ticks))
    assert rate == pytest.approx(1.0)
    assert len(backend.batches) == LEAST_BATCHES


def test_a_lane_that_fails_is_told_of_and_every_lane_closed() -> None:
    backend = backend_of(2)
    backend.fails_on = lambda request: ExecutionFailed("the model broke")
    with spare_lanes(backend) as pool:
        pool.grow(2)
        with pytest.raises(ExecutionFailed, match="the model broke"):
            batches_per_s(pool, BATCH, lanes=2, depth=2, duration_ns=1, clock=lambda: 0)
    assert backend.open_count == 0
    assert backend.closed_lanes == 2

"""Driven lanes: always full, timed batch by batch, closed whatever happens."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from service.bench.drive import WARM_BATCHES, DrivenLanes
from service.buckets import Bucket
from service.errors import ExecutionFailed
from service.runtime.synthetic import synthetic_batch
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_spec


@pytest.mark.parametrize("count", [1, 3])
def test_every_lane_is_kept_full(count: int) -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, lane_depth=2, held=False)
    batch = synthetic_batch(backend.spec, Bucket(4))
    with closing(DrivenLanes(backend, count)) as lanes:
        lanes.start(lambda lane: lane.warm_up(Bucket(4)))
        result = lanes.drive((batch,), 0.02)
    assert backend.warmed == [Bucket(4)] * count
    assert backend.open_count == 0
    assert count <= backend.max_open_count <= 2 * count
    assert result.batches == len(result.durations_ns) > 0
    assert len(result.enqueues_ns) == result.batches
    assert all(0 <= duration < result.duration_s * 1e9 for duration in result.enqueues_ns)
    assert result.duration_s >= 0.02
    assert result.batches_per_s == result.batches / result.duration_s
    assert 0 < result.host_us_per_batch < 1e6 * result.duration_s * count
    assert len(backend.batches) >= result.batches + count * WARM_BATCHES
    assert backend.closed_lanes == count


def test_the_error_of_the_lane_that_failed_is_told_whichever_it_was() -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    batch = synthetic_batch(backend.spec, Bucket(1))
    with closing(DrivenLanes(backend, 3)) as lanes:
        lanes.start(lambda lane: None)
        backend.fails_on = lambda request: (
            ExecutionFailed("the last one") if threading.current_thread().name.endswith("-2") else None
        )
        with pytest.raises(ExecutionFailed, match="the last one"):
            lanes.drive((batch,), 60.0)


def test_a_lane_that_fails_ends_all_of_them() -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    batch = synthetic_batch(backend.spec, Bucket(1))
    with closing(DrivenLanes(backend, 2)) as lanes:
        lanes.start(lambda lane: None)
        backend.fails_on = lambda request: ExecutionFailed("told to fail")
        with pytest.raises(ExecutionFailed, match="told to fail"):
            lanes.drive((batch,), 60.0)
    assert backend.closed_lanes == 2


def test_a_lane_that_fails_holds_no_batch_afterwards() -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, lane_depth=3, held=False)
    batch = synthetic_batch(backend.spec, Bucket(1))
    with closing(DrivenLanes(backend, 1)) as lanes:
        lanes.start(lambda lane: None)
        backend.fails_on = lambda request: ExecutionFailed("told to fail")
        with pytest.raises(ExecutionFailed, match="told to fail"):
            lanes.drive((batch,), 60.0)
        assert backend.open_count == 0


def test_a_failed_warm_up_closes_the_lanes() -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    lanes = DrivenLanes(backend, 2)

    def fail(lane: object) -> None:
        raise ExecutionFailed("cold")

    with pytest.raises(ExecutionFailed, match="cold"):
        lanes.start(fail)
    assert backend.closed_lanes == 1

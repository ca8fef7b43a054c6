"""What a batcher tells those who plan ahead: how far it is behind, and what a request would take of its lanes."""

from __future__ import annotations

import pytest

from service.batching.batcher import Batcher
from service.units import NS_PER_MS
from tests.doubles.batcher_bench import BatcherBench
from tests.doubles.clock import ManualClock
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_request, make_spec


async def test_the_backlog_is_what_waits_and_what_runs_spread_over_the_lanes():
    async with BatcherBench(make_spec(max_batch_size=1), lanes=2) as bench:
        assert bench.batcher.backlog_ns(1) == 0
        for _ in range(20):
            bench.submit(priority=2)
        await bench.begun(2)
        # A row takes 1.01 ms.
        assert bench.batcher.backlog_ns(2) == pytest.approx(10.1 * NS_PER_MS)
        assert bench.batcher.backlog_ns(1) == pytest.approx(1.01 * NS_PER_MS), "what is more urgent waits for less"


@pytest.mark.parametrize("lanes", [1, 2])
async def test_the_lane_time_is_that_of_the_rows_at_their_best(lanes: int):
    async with BatcherBench(make_spec(max_batch_size=8), lanes=lanes) as bench:
        whole_ns = bench.batcher.lane_time_ns(make_request(8))
        assert whole_ns == pytest.approx(1.08 * NS_PER_MS / lanes)
        assert bench.batcher.lane_time_ns(make_request(4)) == pytest.approx(whole_ns / 2)


def test_before_start_there_is_nothing_to_tell():
    batcher = Batcher(HeldBackend(make_spec(), clock=ManualClock()), on_device_lost=lambda error: None)
    assert (batcher.backlog_ns(1), batcher.lane_time_ns(make_request(1))) == (0, 0)

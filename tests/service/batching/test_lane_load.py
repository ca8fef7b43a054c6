"""What lanes hold: counted when a batch begins and when it ends, and told ahead by the costs."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from service.batching.lane_load import LaneLoad
from service.batching.pending import Pending
from service.buckets import Bucket, Home
from service.requests import Batch
from tests.doubles.requests import make_request


def batch_of(rows: int) -> tuple[Batch, tuple[Pending, ...]]:
    requests = tuple(make_request(1) for _ in range(rows))
    items = tuple(
        Pending(each, sequence=0, home=Home(()), work_ns=1.0, queued_ns=0, future=Mock(spec=asyncio.Future))
        for each in requests
    )
    return Batch(Bucket(rows), requests, rows), items


def test_what_ends_gives_back_what_began() -> None:
    load = LaneLoad(2)
    (first, first_items), (second, second_items), (third, third_items) = batch_of(3), batch_of(1), batch_of(2)
    load.begin(0, first, first_items, now_ns=100, cost_ns=50)
    load.begin(0, second, second_items, now_ns=110, cost_ns=10)
    load.begin(1, third, third_items, now_ns=110, cost_ns=30)
    assert (load.in_flight, load.requests, load.busy_lanes, load.is_empty) == ([2, 1], 6, 2, False)
    assert set(load.items()) == {*first_items, *second_items, *third_items}
    assert load.end(1, third) == third_items
    assert load.end(0, first) == first_items
    assert (load.in_flight, load.requests, load.busy_lanes) == ([1, 0], 1, 1)
    assert load.end(0, second) == second_items
    assert (load.in_flight, load.requests, load.busy_lanes, load.is_empty) == ([0, 0], 0, 0, True)


def test_batches_of_a_lane_take_their_time_one_after_the_other() -> None:
    load = LaneLoad(2)
    (first, items), (second, _), (third, _) = batch_of(1), batch_of(1), batch_of(1)
    load.begin(0, first, items, now_ns=100, cost_ns=50)
    load.begin(0, second, items, now_ns=120, cost_ns=50)
    load.begin(1, third, items, now_ns=120, cost_ns=10)
    assert load.remaining_ns(120) == 80 + 10
    assert load.remaining_ns(140) == 60
    assert load.remaining_ns(500) == 0


def test_an_empty_lane_is_free_whatever_its_costs_had_said() -> None:
    load = LaneLoad(1)
    batch, items = batch_of(1)
    load.begin(0, batch, items, now_ns=100, cost_ns=1000)
    load.end(0, batch)
    assert load.remaining_ns(101) == 0
    load.begin(0, batch, items, now_ns=200, cost_ns=50)
    assert load.remaining_ns(200) == 50

"""The policy by table: each case is one decision that a reader can check by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.batching.pending import Pending
from service.batching.policy import IDLE, Dispatch, Rules, WaitUntil, next_action
from service.buckets import Bucket, CostTable, DimSizes, Form, Home
from service.models import ModelSpec
from tests.doubles.requests import NO_FUTURE, costs, linear_costs, make_media_spec, make_request, make_spec

MS = 1_000_000


class Queue:
    """Waiting requests, made by hand."""

    def __init__(self, spec: ModelSpec, table: CostTable) -> None:
        self.spec, self.table = spec, table
        self.groups: dict[Home, list[Pending]] = {}
        self.count = 0

    def add(
        self,
        rows: int = 1,
        dims: DimSizes = (),
        *,
        form: Form = Form.TENSORS,
        queued_ms: float = 0,
        deadline_ms: float = 1e6,
        priority=1,
    ):
        self.count += 1
        home = self.spec.buckets.home(rows, dims, form)
        assert home is not None
        request = make_request(rows, dims=dims, priority=priority, deadline_ns=int(deadline_ms * MS), form=form)
        item = Pending(
            request,
            sequence=self.count,
            home=home,
            work_ns=rows * self.table.row_cost_ns(home, self.spec.buckets.sizes_at(home)),
            queued_ns=int(queued_ms * MS),
            future=NO_FUTURE,
        )
        self.groups.setdefault(home, []).append(item)
        self.groups[home].sort(key=lambda item: item.order)
        return item

    def rules(self, **changes) -> Rules:
        return replace(Rules(self.spec.buckets, self.table, max_queue_delay_ns=0, lane_depth=1), **changes)


def queue_of(*, fixed_us=1000.0, row_us=10.0, **spec) -> Queue:
    made = make_spec(**spec)
    return Queue(made, linear_costs(made, fixed_us=fixed_us, row_us=row_us))


def test_nothing_waiting_is_idle():
    queue = queue_of()
    assert next_action({}, [0], 0, queue.rules()) is IDLE


def test_no_free_lane_is_idle():
    queue = queue_of()
    queue.add()
    assert next_action(queue.groups, [1, 1], 0, queue.rules()) is IDLE


def test_one_request_goes_at_once_in_the_smallest_bucket():
    queue = queue_of()
    item = queue.add()
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch((item,), Bucket(1), 0)


@pytest.mark.parametrize(("in_flight", "lane"), [([0, 0], 0), ([1, 0], 1), ([2, 1], 1), ([1, 1, 0], 2)])
def test_the_least_busy_lane_is_taken(in_flight, lane):
    queue = queue_of()
    queue.add()
    action = next_action(queue.groups, in_flight, 0, queue.rules(lane_depth=2))
    assert isinstance(action, Dispatch)
    assert action.lane_id == lane


def test_a_fixed_cost_makes_one_batch_of_all_that_waits():
    queue = queue_of(fixed_us=1000, row_us=1)
    items = [queue.add() for _ in range(5)]
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch(tuple(items), Bucket(8), 0)


def test_linear_cost_avoids_padding():
    """5 rows in the bucket of 8 would do 5 rows' work for 8 rows' cost: 4 run first."""
    queue = queue_of(fixed_us=1, row_us=1000)
    items = [queue.add() for _ in range(5)]
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch(tuple(items[:4]), Bucket(4), 0)


def test_rates_within_noise_prefer_the_larger_batch():
    spec = make_spec(max_batch_size=2)
    queue = Queue(spec, costs({(1,): 1.00, (2,): 2.02}))
    items = [queue.add(), queue.add()]
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch(tuple(items), Bucket(2), 0)


def test_requests_of_several_rows_are_never_split_nor_overtaken():
    """3 + 6 rows exceed 8, and the single row behind may not jump the 6."""
    queue = queue_of()
    first, _six, _one = queue.add(3), queue.add(6), queue.add(1)
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch((first,), Bucket(4), 0)


def test_priority_comes_before_age():
    queue = queue_of(max_batch_size=1)
    queue.add(priority=2)
    urgent = queue.add(priority=1)
    action = next_action(queue.groups, [0], 0, queue.rules())
    assert isinstance(action, Dispatch)
    assert action.items == (urgent,)


def test_a_smaller_batch_meets_a_deadline_that_the_best_one_would_miss():
    spec = make_spec(max_batch_size=4)
    queue = Queue(spec, costs({(1,): 2, (2,): 3, (4,): 5}))
    items = [queue.add(deadline_ms=4), queue.add(deadline_ms=9), queue.add(deadline_ms=9), queue.add(deadline_ms=9)]
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch(tuple(items[:2]), Bucket(2), 0)


def test_throughput_is_not_given_up_for_a_deadline():
    """The single row would be in time, at little over half the rate: what waits behind it would pay."""
    queue = Queue(make_spec(max_batch_size=2), costs({(1,): 5, (2,): 6}))
    items = [queue.add(deadline_ms=5.5), queue.add(deadline_ms=5.5)]
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch(tuple(items), Bucket(2), 0)


def test_when_no_batch_can_meet_the_deadline_the_best_rate_runs():
    queue = Queue(make_spec(max_batch_size=2), costs({(1,): 5, (2,): 6}))
    items = [queue.add(deadline_ms=1), queue.add(deadline_ms=1)]
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch(tuple(items), Bucket(2), 0)


def test_a_queue_delay_waits_for_company():
    queue = queue_of()
    queue.add(queued_ms=10)
    rules = queue.rules(max_queue_delay_ns=5 * MS)
    assert next_action(queue.groups, [0], 12 * MS, rules) == WaitUntil(15 * MS)
    assert isinstance(next_action(queue.groups, [0], 15 * MS, rules), Dispatch)


def test_a_full_batch_does_not_wait():
    queue = queue_of()
    for _ in range(8):
        queue.add(queued_ms=10)
    action = next_action(queue.groups, [0], 10 * MS, queue.rules(max_queue_delay_ns=5 * MS))
    assert isinstance(action, Dispatch)
    assert action.bucket == Bucket(8)


def test_a_deadline_cuts_the_queue_delay_short():
    spec = make_spec(max_batch_size=4)
    queue = Queue(spec, costs({(1,): 2, (2,): 2, (4,): 2}))
    queue.add(queued_ms=0, deadline_ms=6)
    rules = queue.rules(max_queue_delay_ns=50 * MS)
    assert next_action(queue.groups, [0], 0, rules) == WaitUntil(4 * MS)


def test_cheap_requests_are_not_lifted_to_fill_a_dear_bucket():
    """Cost in proportion to padded elements: joining the short ones to the long one only adds padding."""
    queue = queue_of(fixed_us=1, row_us=10, dims={"sequence": (16, 512)})
    long = queue.add(dims=(500,))
    for _ in range(3):
        queue.add(dims=(10,))
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch((long,), Bucket(1, (512,)), 0)


def test_lifting_happens_where_a_launch_costs_more_than_the_padding():
    queue = queue_of(fixed_us=10_000, row_us=0.01, dims={"sequence": (16, 32)})
    short, long = queue.add(dims=(10,)), queue.add(dims=(30,))
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch((short, long), Bucket(2, (32,)), 0)


def test_a_dimension_served_exactly_never_joins_another_size():
    queue = queue_of(fixed_us=10_000, row_us=0.01, exact=("width",))
    small, _large = queue.add(dims=(10,)), queue.add(dims=(30,))
    action = next_action(queue.groups, [0], 0, queue.rules())
    assert isinstance(action, Dispatch)
    assert action.items == (small,)
    assert action.bucket.dims == (10,)


def test_the_most_urgent_request_is_always_in_the_batch():
    """Sixteen short ones would be far more work per second; the long one is older."""
    queue = queue_of(max_batch_size=16, fixed_us=100, row_us=100, dims={"sequence": (16, 512)})
    long = queue.add(dims=(512,))
    for _ in range(16):
        queue.add(dims=(16,))
    action = next_action(queue.groups, [0], 0, queue.rules())
    assert isinstance(action, Dispatch)
    assert long in action.items


def media_queue(*, fixed_us=10_000.0, row_us=0.01, **spec) -> Queue:
    """Where a launch costs far more than padding, so that all that may share a batch does."""
    made = make_media_spec(**spec)
    return Queue(made, linear_costs(made, fixed_us=fixed_us, row_us=row_us))


def test_no_batch_mixes_forms():
    queue = media_queue()
    tensors, media = queue.add(), queue.add(form=Form.MEDIA)
    also_tensors, also_media = queue.add(), queue.add(form=Form.MEDIA)
    action = next_action(queue.groups, [0], 0, queue.rules())
    assert action == Dispatch((tensors, also_tensors), Bucket(2), 0)
    del queue.groups[Home(())]
    action = next_action(queue.groups, [0], 0, queue.rules())
    assert action == Dispatch((media, also_media), Bucket(2, (), Form.MEDIA), 0)


@pytest.mark.parametrize("first", Form)
def test_the_form_of_the_most_urgent_request_goes_first(first: Form):
    """Though the other form has eight times the work for the price of one."""
    queue = media_queue()
    urgent = queue.add(form=first)
    for _ in range(8):
        queue.add(form=Form(1 - first))
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch((urgent,), Bucket(1, (), first), 0)


def test_a_form_fills_its_own_largest_batch_and_does_not_wait():
    queue = media_queue(media_sizes=(1, 2))
    items = [queue.add(form=Form.MEDIA, queued_ms=10) for _ in range(3)]
    rules = queue.rules(max_queue_delay_ns=5 * MS)
    assert next_action(queue.groups, [0], 10 * MS, rules) == Dispatch(tuple(items[:2]), Bucket(2, (), Form.MEDIA), 0)


def test_media_are_lifted_to_larger_dims_as_tensors_are():
    queue = media_queue(dims={"sequence": (16, 32)})
    short, long = queue.add(dims=(10,), form=Form.MEDIA), queue.add(dims=(30,), form=Form.MEDIA)
    queue.add(dims=(30,))
    assert next_action(queue.groups, [0], 0, queue.rules()) == Dispatch((short, long), Bucket(2, (32,), Form.MEDIA), 0)

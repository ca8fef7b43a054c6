"""Queue and policy together in simulated time, against random traffic: the invariants of DESIGN.md section 7."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching.pending import Pending
from service.batching.policy import Dispatch, Rules, WaitUntil, next_action
from service.batching.queue import RequestQueue
from service.buckets import Bucket, Form
from service.cards import BatchingCard
from tests.doubles.requests import NO_FUTURE, linear_costs, make_media_spec, make_request

US = 1000
DIMS = {"sequence": (16, 64, 256)}
MEDIA_SIZES = (1, 4, 8)


@dataclass(frozen=True)
class Arrival:
    at_us: int
    rows: int
    dim: int
    priority: int
    timeout_us: int
    form: Form


@dataclass
class Outcome:
    dispatched: list[tuple[int, Dispatch]] = field(default_factory=list)
    expired: list[tuple[int, Pending]] = field(default_factory=list)
    idle_while_waiting: list[int] = field(default_factory=list)
    refused: list[Arrival] = field(default_factory=list)


arrivals = st.lists(
    st.builds(
        Arrival,
        at_us=st.integers(0, 5000),
        rows=st.integers(1, 8),
        dim=st.integers(1, 256),
        priority=st.integers(1, 2),
        timeout_us=st.integers(1, 20_000),
        form=st.sampled_from(Form),
    ),
    max_size=40,
)


class Simulation:
    """Event-driven: arrivals, completions and wake-ups in time order; a step after each, as the batcher does."""

    def __init__(
        self,
        traffic: list[Arrival],
        *,
        lanes: int,
        depth: int,
        fixed_us: float,
        delay_us: int,
        unserved: frozenset[Bucket] = frozenset(),
    ) -> None:
        batching = BatchingCard(max_batch_size=8, max_queue_delay_ns=delay_us * US)
        self.spec = make_media_spec(dims=DIMS, batching=batching, media_sizes=MEDIA_SIZES)
        self.buckets = self.spec.buckets.without(unserved)
        self.table = linear_costs(self.spec, fixed_us=fixed_us, row_us=0.5)
        self.rules = Rules(self.buckets, self.table, max_queue_delay_ns=delay_us * US, lane_depth=depth)
        self.queue = RequestQueue(self.spec.card.batching, model="m")
        self.in_flight = [0] * lanes
        self.free_at_us = [0.0] * lanes
        self.outcome = Outcome()
        self.sequence = 0
        self.refuses_late = False
        self.events: list[tuple[float, int, object]] = []
        for arrival in traffic:
            self.push(arrival.at_us, arrival)

    def push(self, at_us: float, event: object) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (at_us, self.sequence, event))

    def run(self) -> Outcome:
        while self.events:
            now_us = self.events[0][0]
            while self.events and self.events[0][0] == now_us:
                _, sequence, event = heapq.heappop(self.events)
                if isinstance(event, Arrival):
                    item = _pending(event, self.buckets, self.table, sequence)
                    if item is None:
                        self.outcome.refused.append(event)
                    elif not self.refuses_late or now_us * US + self.wait_ns(now_us) <= item.deadline_ns:
                        self.queue.add(item)
                elif isinstance(event, int):
                    self.in_flight[event] -= 1
            self.step(now_us)
        assert len(self.queue) == 0
        assert self.queue.nbytes == 0
        assert abs(self.queue.work_before_ns(2)) < 1e-3
        return self.outcome

    def wait_ns(self, now_us: float) -> float:
        running_ns = sum(max(0.0, free_at_us - now_us) * US for free_at_us in self.free_at_us)
        return (self.queue.work_before_ns(1) + running_ns) / len(self.free_at_us)

    def step(self, now_us: float) -> None:
        now_ns = int(now_us * US)
        if now_ns >= self.queue.earliest_deadline_ns:
            self.outcome.expired.extend((now_ns, item) for item in self.queue.expire(now_ns))
        wake_ns = self.queue.earliest_deadline_ns
        while len(self.queue):
            action = next_action(self.queue.groups, self.in_flight, now_ns, self.rules)
            if not isinstance(action, Dispatch):
                if isinstance(action, WaitUntil):
                    wake_ns = min(wake_ns, action.at_ns)
                elif min(self.in_flight) < self.rules.lane_depth:
                    self.outcome.idle_while_waiting.append(now_ns)
                break
            self.dispatch(action, now_ns)
        if len(self.queue):
            self.push(max(min(wake_ns, self.queue.earliest_deadline_ns) / US, now_us + 1e-3), None)

    def dispatch(self, action: Dispatch, now_ns: int) -> None:
        self.queue.take(action.items)
        self.outcome.dispatched.append((now_ns, action))
        lane = action.lane_id
        self.in_flight[lane] += 1
        self.free_at_us[lane] = max(now_ns / US, self.free_at_us[lane]) + self.table.cost_ns(action.bucket) / US
        self.push(self.free_at_us[lane], lane)


def simulate(traffic: list[Arrival], **machine) -> Outcome:
    return Simulation(traffic, **machine).run()


def _pending(arrival, buckets, table, sequence) -> Pending | None:
    home = buckets.home(arrival.rows, (arrival.dim,), arrival.form)
    if home is None:
        return None
    request = make_request(
        arrival.rows,
        dims=(arrival.dim,),
        priority=arrival.priority,
        deadline_ns=(arrival.at_us + arrival.timeout_us) * US,
        request_id=str(sequence),
        form=arrival.form,
    )
    return Pending(
        request,
        sequence=sequence,
        home=home,
        work_ns=arrival.rows * table.row_cost_ns(home, buckets.sizes_at(home)),
        queued_ns=arrival.at_us * US,
        future=NO_FUTURE,
    )


machines = {
    "traffic": arrivals,
    "lanes": st.integers(1, 3),
    "depth": st.integers(1, 2),
    "fixed_us": st.sampled_from([1.0, 100.0, 3000.0]),
    "delay_us": st.sampled_from([0, 0, 500]),
}


KNOWN = tuple(make_media_spec(dims=DIMS, media_sizes=MEDIA_SIZES).buckets.known())


def _fits(form: Form, dim: int, bucket: Bucket) -> bool:
    return form is bucket.form and dim <= bucket.dims[0]


degraded = {**machines, "unserved": st.frozensets(st.sampled_from(KNOWN), min_size=1)}


@given(**degraded)
@settings(max_examples=300)
def test_no_unserved_bucket_is_chosen_and_what_some_bucket_serves_is_served(traffic, **machine):
    outcome = simulate(traffic, **machine)
    served = set(KNOWN) - machine["unserved"]
    assert {action.bucket for _, action in outcome.dispatched} <= served
    for _, action in outcome.dispatched:
        assert sum(item.rows for item in action.items) <= action.bucket.padded_size
        assert all(_fits(item.request.form, item.request.dims[0], action.bucket) for item in action.items)
    refused = [
        arrival
        for arrival in traffic
        if not any(arrival.rows <= b.padded_size and _fits(arrival.form, arrival.dim, b) for b in served)
    ]
    assert sorted(map(repr, outcome.refused)) == sorted(map(repr, refused))
    ended = [item for _, action in outcome.dispatched for item in action.items]
    ended += [item for _, item in outcome.expired]
    assert len({id(item) for item in ended}) == len(ended) == len(traffic) - len(refused)


@given(**{**degraded, "delay_us": st.just(0)})
def test_no_lane_is_idle_while_work_waits_though_buckets_are_missing(traffic, **machine):
    assert simulate(traffic, **machine).idle_while_waiting == []


@given(**machines)
@settings(max_examples=300)
def test_every_request_is_dispatched_or_expired_exactly_once(traffic, **machine):
    outcome = simulate(traffic, **machine)
    ended = [item for _, action in outcome.dispatched for item in action.items]
    ended += [item for _, item in outcome.expired]
    assert len(ended) == len(traffic)
    assert len({id(item) for item in ended}) == len(traffic)


@given(**machines)
def test_every_batch_fits_its_bucket(traffic, **machine):
    for _, action in simulate(traffic, **machine).dispatched:
        assert action.bucket in KNOWN
        assert sum(item.rows for item in action.items) <= action.bucket.padded_size
        for item in action.items:
            assert item.home.form is item.request.form
            assert _fits(item.request.form, item.home.dims[0], action.bucket)


@given(**{**machines, "unserved": st.frozensets(st.sampled_from(KNOWN))})
def test_order_is_kept_within_a_shape_and_a_priority(traffic, **machine):
    by_class: dict[tuple, list[tuple]] = {}
    for _, action in simulate(traffic, **machine).dispatched:
        for item in action.items:
            by_class.setdefault((item.home, item.request.priority), []).append((item.queued_ns, item.order))
    for entries in by_class.values():
        for index, (queued_ns, order) in enumerate(entries):
            for later_queued_ns, later_order in entries[index + 1 :]:
                # Whoever ran first was more urgent, unless the other one was not even there yet.
                assert order < later_order or queued_ns < later_queued_ns


@given(**machines)
def test_no_request_is_dispatched_after_its_deadline_nor_expired_before(traffic, **machine):
    outcome = simulate(traffic, **machine)
    for now_ns, action in outcome.dispatched:
        assert all(now_ns < item.deadline_ns for item in action.items)
    assert all(now_ns >= item.deadline_ns for now_ns, item in outcome.expired)


@given(**{**machines, "delay_us": st.just(0)})
def test_no_lane_is_idle_while_work_waits_and_no_delay_is_configured(traffic, **machine):
    assert simulate(traffic, **machine).idle_while_waiting == []


@given(**{**machines, "delay_us": st.just(500)})
def test_a_queue_delay_is_never_exceeded_while_a_lane_is_free(traffic, **machine):
    """With as many lanes as requests a lane is always free, so only the delay holds anyone back."""
    machine["lanes"] = max(1, len(traffic))
    for now_ns, action in simulate(traffic, **machine).dispatched:
        assert all(now_ns - item.queued_ns <= 500 * US + 2 for item in action.items)


@pytest.mark.parametrize("timeout_ms", [50, 200])
@pytest.mark.parametrize("load", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("forms", [(Form.TENSORS,), (Form.MEDIA,), tuple(Form)], ids=["tensors", "media", "both"])
def test_overload_costs_no_throughput(load, timeout_ms, forms):
    """Offered `load` times the capacity, with admission as the batcher has it, the lanes serve what they can.

    Under overload every request is dispatched close to its deadline; a policy that then prefers batches small enough
    to end in time serves a tenth of the capacity.
    """
    simulation = Simulation([], lanes=1, depth=1, fixed_us=10_000, delay_us=0)
    largest = Bucket(8, (16,))
    capacity_per_us = 8 / (simulation.table.cost_ns(largest) / US)
    count = 3000
    interval_us = 1 / (capacity_per_us * load)
    for index in range(count):
        form = forms[index % len(forms)]
        simulation.push(index * interval_us, Arrival(int(index * interval_us), 1, 16, 1, timeout_ms * 1000, form))
    simulation.refuses_late = True
    outcome = simulation.run()
    duration_us = count * interval_us
    served = sum(len(action.items) for _, action in outcome.dispatched)
    assert served >= 0.95 * min(count, duration_us * capacity_per_us)
    assert len(outcome.expired) <= 0.05 * count, "admission lets in what will expire"


@pytest.mark.parametrize("steady", Form)
def test_neither_form_starves_the_other(steady):
    """A stream of one form at two thirds of the capacity, and now and then a request of the other.

    What waits before such a request is the batch that runs and one of older requests; its own form never fills a batch.
    """
    simulation = Simulation([], lanes=1, depth=1, fixed_us=100, delay_us=0)
    full_us = simulation.table.cost_ns(Bucket(8, (16,))) / US
    seldom = Form(1 - steady)
    for index in range(2000):
        at_us = int(index * full_us / 8 * 1.5)
        simulation.push(at_us, Arrival(at_us, 1, 16, 1, 1_000_000, steady))
        if index % 100 == 0:
            simulation.push(at_us, Arrival(at_us, 1, 16, 1, 1_000_000, seldom))
    waits_us = [
        (now_ns - item.queued_ns) / US
        for now_ns, action in simulation.run().dispatched
        for item in action.items
        if item.home.form is seldom
    ]
    assert len(waits_us) == 20
    assert max(waits_us) <= 2 * full_us

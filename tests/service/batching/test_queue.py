from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.pending import Pending, PendingState
from service.batching.queue import NO_DEADLINE_NS, RequestQueue
from service.buckets import Form, Home
from service.cards import BatchingCard
from service.errors import Overloaded
from tests.doubles.requests import NO_FUTURE, make_request

HOME = Home(())


def pending(sequence=0, *, priority=1, deadline_ns=1000, home=HOME, nbytes=8, work_ns=1.0) -> Pending:
    request = make_request(priority=priority, deadline_ns=deadline_ns, nbytes=nbytes)
    return Pending(request, sequence=sequence, home=home, work_ns=work_ns, queued_ns=0, future=NO_FUTURE)


def test_orders_by_priority_then_deadline_then_age():
    queue = RequestQueue(BatchingCard(), model="m")
    late = pending(1, deadline_ns=900)
    unimportant = pending(2, priority=2, deadline_ns=10)
    soon = pending(3, deadline_ns=100)
    younger = pending(4, deadline_ns=100)
    for item in (late, unimportant, younger, soon):
        queue.add(item)
    assert queue.groups[HOME] == [soon, younger, late, unimportant]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (BatchingCard(max_queued_requests=2), "max_queued_requests is 2"),
        (BatchingCard(max_queued_bytes=20), "max_queued_bytes is 20"),
    ],
)
def test_refuses_at_its_limits_and_says_which(limits, says):
    queue = RequestQueue(limits, model="m")
    for sequence in range(2):
        queue.check_room(8, retry_after_s=1.0)
        queue.add(pending(sequence))
    with pytest.raises(Overloaded, match=says) as caught:
        queue.check_room(8, retry_after_s=1.5)
    assert caught.value.message.startswith("Exceeds maximum queue size")
    assert caught.value.retry_after_s == 1.5


def test_room_returns_when_a_request_leaves():
    queue = RequestQueue(BatchingCard(max_queued_requests=1), model="m")
    item = pending()
    queue.add(item)
    assert queue.discard(item)
    queue.check_room(8, retry_after_s=0)
    assert not queue.discard(item)
    assert item.state is PendingState.DONE


def test_work_counts_only_what_goes_before():
    queue = RequestQueue(BatchingCard(), model="m")
    queue.add(pending(1, priority=1, work_ns=5))
    queue.add(pending(2, priority=2, work_ns=7))
    assert queue.work_before_ns(1) == 5
    assert queue.work_before_ns(2) == 12


homes = st.builds(Home, st.sampled_from([(), (1,), (2,)]), st.sampled_from(Form))
entries = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50), homes), max_size=30)


@given(entries, st.integers(0, 60))
def test_expire_takes_exactly_what_is_due(items, now_ns):
    queue = RequestQueue(BatchingCard(priority_levels=3), model="m")
    made = [
        pending(sequence, priority=priority, deadline_ns=deadline_ns, home=home)
        for sequence, (priority, deadline_ns, home) in enumerate(items)
    ]
    for item in made:
        queue.add(item)
    expired = queue.expire(now_ns)
    assert {id(i) for i in expired} == {id(i) for i in made if i.deadline_ns <= now_ns}
    left = [i for i in made if i.deadline_ns > now_ns]
    assert {id(i) for i in queue} == {id(i) for i in left}
    assert len(queue) == len(left)
    assert queue.nbytes == sum(i.request.nbytes for i in left)
    assert queue.earliest_deadline_ns == min((i.deadline_ns for i in left), default=NO_DEADLINE_NS)


@given(entries, st.randoms())
def test_discarding_in_any_order_empties_it(items, random):
    queue = RequestQueue(BatchingCard(priority_levels=3), model="m")
    made = [
        pending(sequence, priority=priority, deadline_ns=deadline_ns, home=home)
        for sequence, (priority, deadline_ns, home) in enumerate(items)
    ]
    for item in made:
        queue.add(item)
    random.shuffle(made)
    for item in made:
        assert queue.discard(item)
    assert len(queue) == 0
    assert queue.nbytes == 0
    assert not queue.groups

"""What the batcher notes: why requests waited, what batches held, and how many waited on the mean."""

from __future__ import annotations

import pytest

from service.batching.pending import Pending
from service.batching.queue_watch import MAX_COLD_KEYS, QueueWatch, stamp_lane_times
from service.buckets import Bucket, Form, Home
from service.requests import Batch, BatchTimings, DeviceTimings, waits
from service.telemetry.activity import Activity
from tests.doubles.requests import NO_FUTURE, make_request


def watch(*, is_exact: bool = False) -> QueueWatch:
    return QueueWatch(Activity(0), is_exact=is_exact)


def item(queued_ns: int, **request) -> Pending:
    made = make_request(**request)
    made.stamps.prepared = queued_ns
    return Pending(made, sequence=1, home=Home(()), work_ns=1.0, queued_ns=queued_ns, future=NO_FUTURE)


def formation_ns(waited: Pending) -> int:
    return waits(waited.request.stamps)[0]


def test_waiting_for_a_lane_is_no_waiting_for_company():
    notes, waiting = watch(), item(100)
    notes.queued(waiting)
    notes.step_began(150)
    notes.step_began(900)
    notes.dispatched([waiting], 900)
    assert formation_ns(waiting) == 0
    assert waiting.request.stamps.dispatched == 900


def test_a_request_waits_for_company_from_its_arrival_until_the_policy_has_had_enough():
    notes, first, second = watch(), item(100), item(300)
    notes.queued(first)
    notes.step_began(110)
    notes.kept_open(110)
    notes.queued(second)
    notes.step_began(310)
    notes.kept_open(310)
    notes.step_began(500)
    notes.dispatched([first, second], 500)
    assert (formation_ns(first), formation_ns(second)) == (390, 200)


def test_waiting_for_company_and_then_for_a_lane_are_told_apart():
    notes, waiting = watch(), item(100)
    notes.queued(waiting)
    notes.step_began(100)
    notes.kept_open(100)
    notes.step_began(140)
    notes.step_began(900)
    notes.dispatched([waiting], 1000)
    assert formation_ns(waiting) == 40


def test_the_queue_s_length_is_integrated_whatever_takes_requests_out():
    notes, items = watch(), [item(100), item(200), item(300)]
    for each in items:
        notes.queued(each)
    notes.dispatched(items[:1], 400)
    notes.left(items[1:], 500)
    marks = notes.activity.waiting.marks(1000)
    assert (marks.inside, marks.area_ns) == (0, 300 + 300 + 200)


def test_useful_volume_is_that_before_padding():
    plain = Batch(Bucket(8), (make_request(3), make_request(2)), 5)
    assert watch().batch_facts(plain, 0, item(0))[:2] == (5, 0)
    long = Batch(Bucket(4, (16,)), (make_request(2, dims=(10,)), make_request(1, dims=(16,))), 3)
    assert watch().batch_facts(long, 0, item(0))[:2] == (36, 0)


@pytest.mark.parametrize("bucket", [Bucket(1), Bucket(1, (16,))], ids=["rows alone", "dims"])
def test_how_long_a_batch_s_first_request_waited_and_why(bucket):
    notes, waiting = watch(), item(100, dims=bucket.dims)
    notes.queued(waiting)
    notes.step_began(150)
    notes.kept_open(150)
    notes.step_began(400)
    notes.dispatched([waiting], 450)
    stamp_lane_times([waiting], BatchTimings(460, 500, 600, 610), 620)
    facts = notes.batch_facts(Batch(bucket, (waiting.request,), 1), 0, waiting)
    assert (facts.queued, facts.kept_open, facts.handed_over) == (350, 250, 10)


def test_only_buckets_that_nobody_could_warm_are_cold_and_once_per_lane():
    batch = Batch(Bucket(1, (7,)), (make_request(1, dims=(7,)),), 1)
    assert [watch().batch_facts(batch, lane, item(0)).is_cold for lane in (0, 0)] == [0, 0]
    notes = watch(is_exact=True)
    assert [notes.batch_facts(batch, lane, item(0)).is_cold for lane in (0, 0, 1, 1)] == [1, 0, 1, 0]
    other = Batch(Bucket(1, (7,), Form.MEDIA), batch.requests, 1)
    assert notes.batch_facts(other, 0, item(0)).is_cold == 1


def test_what_is_remembered_of_exact_sizes_is_bounded():
    notes = watch(is_exact=True)
    cold = 0
    for size in range(1, MAX_COLD_KEYS + 10):
        request = make_request(1, dims=(2,))
        cold += notes.batch_facts(Batch(Bucket(1, (size,)), (request,), 1), 0, item(0)).is_cold
    assert cold == MAX_COLD_KEYS


def test_the_wait_behind_another_batch_is_a_part_of_the_upload():
    waiting = item(0)
    device = DeviceTimings(h2d=10, wait=70, d2h=5, enqueue=3)
    stamp_lane_times([waiting], BatchTimings(100, 200, 300, 320, device), 330)
    stamps = waiting.request.stamps
    assert waits(stamps)[1] == 70
    assert (stamps.started, stamps.uploaded, stamps.copied_in, stamps.computed) == (100, 130, 200, 300)
    assert (stamps.copied_out, stamps.completed) == (320, 330)

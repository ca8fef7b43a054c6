"""What a front end knows of the engine's queue, and what it keeps of the region."""

import numpy as np
import pytest

from service.errors import NotReady, PayloadTooLarge
from service.telemetry.activity import Activity
from service.transport.descriptors import Done, Moments, pack_done, unpack_submit
from service.transport.objects import PublishedModel
from service.transport.region import Region
from service.transport.remote_batcher import RemoteBatcher
from service.transport.remote_requests import RemoteRequests
from service.transport.wire import HEAD_BYTES, Kind, Malformed, pack_frame
from tests.doubles.clock import ManualClock
from tests.doubles.requests import linear_costs, make_spec
from tests.doubles.transport_bench import request_of

SPEC = make_spec()
MS = 1_000_000


class KeepingChannel:
    def __init__(self):
        self.frames = []

    def send(self, frame):
        self.frames.append(frame)

    def submits(self):
        return [unpack_submit(memoryview(frame)[HEAD_BYTES:])[0] for frame in self.frames if frame[4] == Kind.SUBMIT]


class Bench:
    def __init__(self):
        self.clock = ManualClock()
        self.room = Region(np.zeros(1 << 16, np.uint8))
        self.requests = RemoteRequests(self.room)
        self.channel = KeepingChannel()
        self.requests.attach(self.channel)
        published = PublishedModel(number=4, spec=SPEC, costs=linear_costs(SPEC, fixed_us=0, row_us=1000), lanes=2)
        self.batcher = RemoteBatcher(published, self.requests, Activity(0), self.clock)

    def submit(self, rows=1):
        request = request_of(np.ones((rows, 4), np.float32))
        request.stamps.prepared = self.clock()
        return self.batcher.submit(request)

    def answer(self, number, *, backlog_ns=0):
        done = Done(number, Moments(*[0] * 7), self.clock(), backlog_ns, ())
        self.requests.done(memoryview(pack_done(done, ()))[HEAD_BYTES:], self.clock())


@pytest.fixture
async def bench():
    return Bench()


async def test_a_request_says_what_it_is_and_where_it_lies(bench):
    bench.submit(rows=2)
    bench.submit()
    first, second = bench.channel.submits()
    assert (first.model, first.rows, first.inputs[0].shape) == (4, 2, (2, 4))
    assert first.number != second.number
    assert first.result_bytes >= 2 * 16
    assert not first.inputs[0].offset <= first.result_offset < first.inputs[0].offset + first.inputs[0].nbytes


async def test_the_backlog_is_what_was_told_and_what_was_submitted_since(bench):
    assert bench.batcher.backlog_ns(1) == 0
    bench.submit(rows=4)
    assert bench.batcher.backlog_ns(1) == 2 * MS  # 4 rows of a millisecond on two lanes
    (submit,) = bench.channel.submits()
    with pytest.raises(Malformed):
        bench.answer(submit.number, backlog_ns=7 * MS)  # it has no outputs
    bench.submit(rows=4)
    assert bench.batcher.backlog_ns(1) == 4 * MS
    bench.clock.advance_ms(3)
    assert bench.batcher.backlog_ns(1) == 1 * MS
    bench.clock.advance_ms(3)
    assert bench.batcher.backlog_ns(1) == 0


async def test_an_answer_corrects_the_backlog(bench):
    request = request_of(np.ones((1, 4), np.float32), outputs=())
    item = bench.batcher.submit(request)
    bench.answer(item.number, backlog_ns=7 * MS)
    assert item.future.result() == ()
    assert bench.batcher.backlog_ns(1) == 7 * MS


async def test_an_answer_to_nothing_is_malformed(bench):
    with pytest.raises(Malformed, match="request 3"):
        bench.answer(3)


async def test_an_answer_that_makes_no_sense_still_ends_its_request(bench):
    item = bench.submit()
    with pytest.raises(Malformed):
        bench.answer(item.number)
    with pytest.raises(NotReady):
        item.future.result()
    assert bench.room.held_bytes == 0


async def test_an_answer_that_cannot_be_kept_still_ends_its_request(bench, monkeypatch):
    def take_up(*_):
        raise MemoryError

    monkeypatch.setattr("service.transport.remote_requests.take_up", take_up)
    item = bench.submit()
    with pytest.raises(MemoryError):
        bench.answer(item.number)
    with pytest.raises(NotReady):
        item.future.result()
    assert bench.room.held_bytes == 0


async def test_a_request_that_no_message_holds_is_refused_and_keeps_no_memory(bench, monkeypatch):
    monkeypatch.setattr("service.transport.wire.MAX_PAYLOAD_BYTES", 8)
    with pytest.raises(PayloadTooLarge, match="at most 8 may cross"):
        bench.submit()
    assert not len(bench.requests)
    assert not bench.channel.frames
    assert bench.room.held_bytes == 0


async def test_without_an_engine_nothing_is_taken_and_what_was_lent_is_not_lent_again(bench):
    item = bench.submit()
    held_bytes = bench.room.held_bytes
    bench.requests.lose()
    with pytest.raises(NotReady):
        item.future.result()
    with pytest.raises(NotReady):
        bench.submit()
    assert not bench.batcher.cancel(item)
    assert bench.room.held_bytes == held_bytes
    bench.requests.attach(bench.channel)
    assert bench.room.held_bytes == 0


async def test_an_item_of_somewhere_else_is_not_cancelled(bench):
    item = bench.submit()
    assert bench.batcher.cancel(item)
    assert not Bench().batcher.cancel(item)


async def test_a_shape_that_is_not_served_takes_no_time(bench):
    assert bench.batcher.lane_time_ns(request_of(np.ones((99, 4), np.float32))) == 0


async def test_a_failure_that_makes_no_sense_is_malformed(bench):
    with pytest.raises(Malformed):
        bench.requests.failed(memoryview(pack_frame(Kind.FAILED, b"?"))[HEAD_BYTES:])

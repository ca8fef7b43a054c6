"""Front ends and engines that go away in the middle of it: everything is answered, and no memory is lost or shared."""

import asyncio

import pytest

from service.errors import ModelLoadFailed, NotReady
from service.transport.descriptors import pack_cancel
from service.transport.link import LEAST_DELAY_S, MOST_DELAY_S, retry_delay_s
from service.transport.objects import Hello, pack_object
from service.transport.wire import Kind, pack_frame
from tests.doubles.held_repository import begun, submit, until
from tests.doubles.transport_bench import request_of, row


async def test_what_a_vanished_front_end_left_waiting_leaves_the_queue(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    running = submit(repository)
    await begun(backend)
    left = front_end.submit(request_of(row()))
    batcher = repository.batcher("m")
    await until(lambda: batcher.queued_requests == 1)
    front_end.vanish()
    await until(lambda: batcher.queued_requests == 0)
    with pytest.raises(NotReady):
        await left
    backend.let()
    await asyncio.wait_for(running.future, 10)


async def test_a_region_is_welcomed_again_only_when_no_lane_uses_it(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    front_end.submit(request_of(row()))
    await begun(backend)
    front_end.vanish()
    (session,) = bench.reception.sessions
    successor = bench.front_end()
    other = await bench.front_end(1).serves("m")  # which does not wait for anybody else's region
    assert not successor.link.is_up
    assert not session.ended.is_set()
    with pytest.raises(NotReady):
        successor.mirror.get("m")
    backend.let(2)
    await successor.serves("m")
    assert session.ended.is_set()
    last = successor.submit(request_of(row()))
    backend.let()
    await asyncio.wait_for(last, 10)
    assert other.link.is_up


async def test_a_front_end_that_gives_up_waiting_for_its_region_is_forgotten(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    front_end.submit(request_of(row()))
    await begun(backend)
    front_end.vanish()
    waiting = bench.front_end()
    await until(lambda: waiting.link._channel is not None)
    waiting.vanish()
    backend.let(4)
    await bench.front_end().serves("m")


async def test_an_engine_that_vanishes_ends_every_request_at_once_and_comes_back(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    futures = [front_end.submit(request_of(row())) for _ in range(3)]
    await begun(backend)
    held_bytes = front_end.room.held_bytes
    await bench.vanish()
    for future in futures:
        with pytest.raises(NotReady, match="engine process is not there"):
            await asyncio.wait_for(future, 10)
    with pytest.raises(NotReady):
        front_end.mirror.get("m")
    assert front_end.room.held_bytes == held_bytes  # a lane may still write there
    assert front_end.forwardings[0].is_lost
    backend.let(8)
    await bench.listen()
    await front_end.serves("m")
    assert front_end.room.held_bytes == 0
    await front_end.submit(request_of(row()))


async def test_a_model_that_is_held_on_to_says_that_the_engine_is_away(repository, bench):
    front_end = await bench.front_end().serves("m")
    model = front_end.mirror.get("m")
    await bench.vanish()
    await until(lambda: not front_end.link.is_up)
    with pytest.raises(NotReady):
        model.batcher.submit(request_of(row()))
    assert front_end.room.held_bytes == 0


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\xff" * 64, id="no frame"),
        pytest.param(pack_frame(Kind.SUBMIT, b"short"), id="a request cut short"),
        pytest.param(pack_frame(Kind.RECORDS, b"no pickle"), id="no pickle"),
        pytest.param(pack_object(Kind.KNOWN, Hello(0, 0)), id="another class"),
        pytest.param(pack_object(Kind.HELLO, Hello(0, 0)), id="a second hello"),
        pytest.param(pack_frame(Kind.CANCEL, b"1"), id="a cancellation cut short"),
        pytest.param(pack_frame(Kind.DONE, b""), id="what only the engine says"),
    ],
)
async def test_what_makes_no_sense_ends_its_session_and_nothing_else(repository, bench, frame):
    front_end, other = await bench.front_end(0).serves("m"), await bench.front_end(1).serves("m")
    front_end.link._channel.send(frame)
    await until(lambda: not front_end.link.is_up)
    await other.submit(request_of(row()))
    await front_end.serves("m")
    await front_end.submit(request_of(row()))


async def test_a_cancellation_of_what_was_answered_is_nothing(bench):
    front_end = await bench.front_end().serves("m")
    front_end.link._channel.send(pack_cancel(77))
    await front_end.submit(request_of(row()))
    assert len(front_end.forwardings) == 1


async def test_a_region_that_is_not_there_is_not_entered(bench, caplog):
    stranger = bench.front_end(0)
    stranger.link._hello = Hello(9, restarts=0)
    await until(lambda: "was not let in" in caplog.text)
    assert not stranger.link.is_up


async def test_forwarded_calls_reach_their_side_and_end_with_the_channel(bench):
    front_end = await bench.front_end().serves("m")
    front_end.link._channel.send(pack_frame(Kind.FORWARD, b"there"))
    await until(lambda: bench.forwardings[0].payloads == [b"there"])
    bench.forwardings[0].channel.send(pack_frame(Kind.FORWARD, b"back"))
    await until(lambda: front_end.forwardings[0].payloads == [b"back"])
    front_end.vanish()
    await until(lambda: bench.forwardings[0].is_lost)


async def test_a_silent_front_end_is_not_waited_for_for_ever(repository, bench, caplog):
    front_end = await bench.front_end().serves("m")
    bench.publisher._max_silence_s = 0.05

    async def says_nothing(published):
        await asyncio.Event().wait()

    front_end.mirror.follow = says_nothing
    await asyncio.wait_for(repository.registry.load("m"), 10)
    assert "not waited for any longer" in caplog.text


async def test_a_task_that_cannot_be_made_here_leaves_the_other_models_alone(repository, bench):
    repository.add("n")
    await repository.registry.load("n")

    def make_task(spec):
        if spec.name == "n":
            raise ModelLoadFailed("its labels are gone")

    bench.make_task = make_task
    front_end = await bench.front_end().serves("m")
    with pytest.raises(NotReady, match="its labels are gone"):
        front_end.mirror.get("n")


async def test_a_catalogue_that_cannot_be_followed_is_asked_for_less_and_less_often(bench, caplog):
    front_end = bench.front_end()
    follow = front_end.mirror.follow

    async def breaks(published):
        raise RuntimeError("no")

    front_end.mirror.follow = breaks
    await until(lambda: front_end.link._failures >= 3)
    assert "cannot be served" in caplog.text
    front_end.mirror.follow = follow
    await front_end.serves("m")
    await until(lambda: front_end.link._failures == 0)


def test_the_engine_is_looked_for_less_and_less_often():
    delays = [retry_delay_s(failures) for failures in range(40)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (LEAST_DELAY_S, MOST_DELAY_S)

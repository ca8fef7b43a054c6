"""Frames of streams: their order, how many at once, who waits for whom, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.api.stream_session import MAX_UNANSWERED
from service.cards import BatchingCard
from service.errors import ExecutionFailed
from service.requests import InferenceRequest
from tests.doubles.held_repository import begun, until
from tests.doubles.stream_bench import StreamBench, StreamClient

FRAME = b"1234"
SUM = 20.0


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[StreamBench]:
    async with StreamBench(tmp_path) as bench:
        yield bench


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[StreamBench]:
    """Each frame runs in a batch of its own."""
    async with StreamBench(tmp_path, batching=BatchingCard(max_batch_size=1)) as bench:
        yield bench


def digits(number: int) -> bytes:
    return b"%04d" % number


async def sums(client: StreamClient, count: int) -> list[tuple[int, float]]:
    answers = [await client.hears() for _ in range(count)]
    return [(answer["frame"], answer["sums"][0]) for answer in answers]


async def test_frames_are_answered_in_their_order(bench: StreamBench):
    client = await bench.connect().opened(max_in_flight=8)
    client.frames(*map(digits, range(50)))
    expected = [(number, 2.0 * sum(map(int, f"{number:04d}"))) for number in range(50)]
    assert await sums(client, 50) == expected
    assert bench.records() == (50, [])
    assert bench.budget.held_bytes == 0


async def test_later_frames_wait_for_an_earlier_one_to_be_answered(bench: StreamBench):
    client = await bench.connect().opened()
    bench.repository.hold(bench.backend)
    client.frames(b"12x4", FRAME, b"zzzz")
    await begun(bench.backend)
    first = await client.hears()
    assert (first["frame"], first["status"], first["error"]) == (0, 400, "digits, please")
    bench.task.may_prepare.clear()
    bench.backend.let()
    assert await sums(client, 1) == [(1, SUM)]
    bench.task.may_prepare.set()
    assert (await client.hears())["frame"] == 2
    assert bench.records() == (1, ["invalid", "invalid"])


async def test_an_earlier_frame_that_is_slower_is_answered_first(alone: StreamBench):
    """Frames run on the model in any order; here the second is done before the first has begun."""
    client = await alone.connect().opened()
    alone.repository.hold(alone.backend)
    client.frames(FRAME, b"bad!")
    await begun(alone.backend)
    await until(lambda: alone.records()[1] == ["invalid"])
    assert len(client.sent) == 2
    alone.backend.let()
    assert await sums(client, 1) == [(0, SUM)]
    assert (await client.hears())["frame"] == 1


async def test_a_frame_is_a_request_of_its_model_with_all_its_stages(bench: StreamBench):
    client = await bench.connect().opened(options={"times": "3"})
    client.frames(b"12345678")
    answer = await client.hears()
    assert answer == {"frame": 0, "sums": [60.0, 156.0]}
    await until(lambda: bench.recorder.requests == 1)
    ((timings, rows),) = bench.recorder.models["m", "1"].requests
    assert rows == 2
    assert all(stage >= 0 for stage in timings)
    assert (timings.prepare, timings.queue + timings.dispatch) > (0, 0)
    (facts,) = bench.recorder.models["m", "1"].request_facts
    assert (facts.body_bytes, facts.answer_bytes) == (8, len(b'{"sums":[60.0,156.0]}'))


@pytest.mark.parametrize("max_in_flight", [1, 3])
async def test_no_more_is_read_than_may_be_in_flight_and_one_ahead(alone: StreamBench, max_in_flight: int):
    client = await alone.connect().opened(max_in_flight=max_in_flight)
    alone.repository.hold(alone.backend)
    client.frames(*[FRAME] * 10)
    await begun(alone.backend)
    await until(lambda: client.unread == 9 - max_in_flight)
    for answered in range(1, 10 - max_in_flight):
        alone.backend.let()
        assert await sums(client, 1) == [(answered - 1, SUM)]
        await until(lambda done=answered: client.unread == 9 - max_in_flight - done)
    alone.backend.let(max_in_flight + 1)
    assert len(await sums(client, max_in_flight + 1)) == max_in_flight + 1


async def test_the_latest_of_the_frames_that_wait_is_kept(alone: StreamBench):
    client = await alone.connect().opened(max_in_flight=2, freshness="latest")
    alone.repository.hold(alone.backend)
    client.frames(*map(digits, range(7)))
    await begun(alone.backend)
    await until(lambda: client.unread == 0)
    assert alone.recorder.dropped_frames == 4
    assert alone.budget.held_bytes == 3 * 4
    alone.backend.let(10)
    answers = [await client.hears() for _ in range(7)]
    assert [answer["frame"] for answer in answers] == list(range(7))
    assert [answer.get("dropped", False) for answer in answers] == [False, False, True, True, True, True, False]
    assert answers[6]["sums"] == [12.0]
    await until(lambda: alone.records() == (3, []))


async def test_a_client_of_the_latest_that_reads_nothing_is_not_read_for_ever(alone: StreamBench):
    client = await alone.connect().opened(max_in_flight=1, freshness="latest")
    client.may_send.clear()
    client.frames(*[FRAME] * (MAX_UNANSWERED + 10))
    await until(lambda: client.unread == 9)
    await asyncio.sleep(0)
    assert client.unread == 9
    client.may_send.set()
    answers = [await client.hears() for _ in range(MAX_UNANSWERED + 10)]
    assert [answer["frame"] for answer in answers] == list(range(MAX_UNANSWERED + 10))


async def test_a_client_that_reads_no_answers_is_sent_no_more_than_it_may_have_in_flight(bench: StreamBench):
    client = await bench.connect().opened(max_in_flight=4)
    client.may_send.clear()
    client.frames(*[FRAME] * 20)
    await until(lambda: client.unread == 15)
    await asyncio.sleep(0)
    assert (client.unread, bench.recorder.requests) == (15, 0)
    client.may_send.set()
    assert len(await sums(client, 20)) == 20


async def test_two_streams_take_turns_however_greedy_one_is(alone: StreamBench):
    """The greedy one has eight frames in the queue, the modest one a frame at a time: it waits for eight, no more."""
    greedy, modest = await alone.connect().opened(max_in_flight=8), await alone.connect().opened(max_in_flight=1)
    alone.repository.hold(alone.backend)
    greedy.frames(*[FRAME] * 100)
    await begun(alone.backend)
    await until(lambda: greedy.unread == 91)
    modest.frames(*[b"9999"] * 5)
    for _ in range(45):
        alone.backend.let()
        await begun(alone.backend)
    ran = [float(batch.requests[0].inputs[0][0, 0]) for batch in alone.backend.batches]
    places = [place for place, digit in enumerate(ran) if digit == 9]
    assert len(places) == 5
    assert max(later - earlier for earlier, later in itertools.pairwise(places)) <= 9
    alone.backend.let(1000)
    assert len(await sums(modest, 5)) == 5


async def test_frames_of_streams_share_batches(bench: StreamBench):
    clients = [await bench.connect().opened() for _ in range(3)]
    bench.repository.hold(bench.backend)
    clients[0].frames(FRAME)
    await begun(bench.backend)
    for client in clients:
        client.frames(FRAME)
    await until(lambda: bench.registry.get("m").batcher.queued_requests == 3)
    bench.backend.let(10)
    for client, count in zip(clients, (2, 1, 1), strict=True):
        assert len(await sums(client, count)) == count
    assert [batch.size for batch in bench.backend.batches[-2:]] == [1, 3]


async def test_a_frame_that_was_dropped_for_want_of_room_is_refused(bench: StreamBench):
    client = await bench.connect().opened()
    client.refused_frame()
    client.frames(FRAME)
    assert await client.hears() == {"frame": 0, "error": "no room", "status": 503}
    assert await sums(client, 1) == [(1, SUM)]
    assert bench.recorder.failures == ["overloaded"]


async def test_a_batch_that_fails_fails_its_frames_and_the_stream_goes_on(bench: StreamBench):
    def fails_on_nine(request: InferenceRequest) -> Exception | None:
        return ExecutionFailed("nine") if request.inputs[0][0, 0] == 9 else None

    bench.backend.fails_on = fails_on_nine
    client = await bench.connect().opened()
    client.frames(b"9000", FRAME)
    assert await client.hears() == {"frame": 0, "error": "nine", "status": 500}
    assert await sums(client, 1) == [(1, SUM)]


async def test_what_nobody_foresaw_fails_one_frame_and_is_logged(bench: StreamBench, caplog: pytest.LogCaptureFixture):
    client = await bench.connect().opened()
    render, bench.task.render = bench.task.render, None  # type: ignore[assignment, method-assign]
    client.frames(FRAME)
    answer = await client.hears()
    assert (answer["frame"], answer["status"]) == (0, 500)
    incident = answer["error"].rsplit(" ", 1)[1]
    assert incident in caplog.text
    assert "not callable" in caplog.text
    bench.task.render = render  # type: ignore[method-assign]
    client.frames(FRAME)
    assert await sums(client, 1) == [(1, SUM)]
    assert bench.recorder.failures == ["internal"]


async def test_what_nobody_foresaw_of_sending_ends_the_stream(bench: StreamBench, caplog: pytest.LogCaptureFixture):
    client = await bench.connect().opened()
    bench.recorder.models["m", "1"].record_request = None  # type: ignore[assignment, method-assign]
    client.frames(FRAME)
    assert await sums(client, 1) == [(0, SUM)]
    assert await client.hears() == 1011
    assert client.sent[-1]["reason"].rsplit(" ", 1)[1] in caplog.text
    client.frames(*[FRAME] * 10)
    await client.task
    assert client.unread > 0


@pytest.mark.parametrize("max_in_flight", [4, 5])
async def test_a_client_that_leaves_takes_its_frames_along(alone: StreamBench, max_in_flight: int):
    """Also where as many as may be are unanswered, and no frame is wanted."""
    client = await alone.connect().opened(max_in_flight=max_in_flight)
    alone.repository.hold(alone.backend)
    client.frames(*[FRAME] * 4)
    await begun(alone.backend)
    await until(lambda: alone.registry.get("m").batcher.queued_requests == 3)
    client.leave()
    await client.task
    assert alone.registry.get("m").batcher.queued_requests == 0
    assert alone.records() == (0, ["cancelled"] * 4)
    assert alone.budget.held_bytes == 0
    alone.backend.let()


async def test_a_client_that_leaves_with_an_answer_unsent_and_a_frame_waiting(alone: StreamBench):
    client = await alone.connect().opened(max_in_flight=1, freshness="latest")
    client.may_send.clear()
    client.frames(FRAME, FRAME, FRAME)
    await until(lambda: alone.recorder.dropped_frames == 1)
    client.leave()
    client.may_send.set()
    await client.task
    assert alone.records() == (0, ["cancelled"] * 2)
    assert alone.budget.held_bytes == 0


async def test_a_model_that_is_unloaded_fails_frames_until_it_is_back(bench: StreamBench):
    client = await bench.connect().opened()
    await bench.registry.unload("m")
    client.frames(FRAME)
    answer = await client.hears()
    assert (answer["frame"], answer["status"]) == (0, 503)
    assert "m" in answer["error"]
    await bench.registry.load("m")
    client.frames(FRAME)
    assert await sums(client, 1) == [(1, SUM)]


async def test_a_model_that_is_reloaded_answers_every_frame(bench: StreamBench):
    client = await bench.connect().opened(max_in_flight=8)
    client.frames(*[FRAME] * 100)
    await bench.registry.load("m")
    assert [answer for _, answer in await sums(client, 100)] == [SUM] * 100


async def test_a_server_that_ends_answers_what_it_has_read(alone: StreamBench):
    client = await alone.connect().opened(max_in_flight=3)
    alone.repository.hold(alone.backend)
    client.frames(FRAME, FRAME)
    await begun(alone.backend)
    client.leave(is_stopping=True)
    alone.backend.let(2)
    assert await sums(client, 2) == [(0, SUM), (1, SUM)]
    assert await client.hears() == 1001


async def test_a_server_that_waits_no_longer_counts_what_was_not_answered(alone: StreamBench):
    client = await alone.connect().opened()
    alone.repository.hold(alone.backend)
    client.frames(FRAME)
    await begun(alone.backend)
    client.leave(is_stopping=True)
    await until(lambda: client.unread == 0)
    client.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client.task
    assert alone.records() == (0, ["shutting_down"])
    alone.backend.let()


async def test_a_frame_that_waits_for_its_turn_is_given_up_with_its_stream(alone: StreamBench):
    client = await alone.connect().opened(max_in_flight=1)
    alone.repository.hold(alone.backend)
    client.frames(FRAME, FRAME)
    await begun(alone.backend)
    await until(lambda: client.unread == 0)
    assert alone.budget.held_bytes == 2 * len(FRAME)
    client.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client.task
    assert alone.budget.held_bytes == 0
    assert alone.records() == (0, ["shutting_down"])
    alone.backend.let()


async def test_text_after_the_header_ends_the_stream_behind_its_answers(bench: StreamBench):
    client = await bench.connect().opened()
    client.frames(FRAME)
    client.say("more")
    assert await sums(client, 1) == [(0, SUM)]
    assert await client.hears() == 1003

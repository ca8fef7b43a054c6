"""Forwarded calls, over a real pair of sockets: clients meet the application of the engine as if it were their own."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.transport.channel import Channel, Forwarding
from service.transport.engine_forward import CHUNK_BYTES, EngineForwarding
from service.transport.forward import MAX_BODY_BYTES, Forward
from service.transport.forward_wire import (
    WINDOW_BYTES,
    Part,
    pack_part,
    unpack_head,
    unpack_part,
    unpack_scope,
    unpack_taken,
)
from service.transport.wire import HEAD_BYTES, Frame, Malformed
from tests.doubles.held_repository import until


class Side:
    """A `Receiver` that only forwards."""

    def __init__(self, make: Callable[[Channel], Forwarding]) -> None:
        self._make = make
        self.forwarding: Forwarding | None = None
        self.error: Exception | None = None
        self.is_lost = False

    def opened(self, channel: Channel) -> None:
        self.forwarding = self._make(channel)

    def received(self, frames: Sequence[Frame]) -> None:
        assert self.forwarding is not None
        for frame in frames:
            self.forwarding.received(frame.payload)

    def lost(self, error: Exception | None) -> None:
        assert self.forwarding is not None
        self.error, self.is_lost = error, True
        self.forwarding.lost()


async def settled() -> None:
    """Nothing is counted here."""


class Pair:
    """A front end's application, and the channels between it and the engine's."""

    def __init__(self, app: ASGIApp) -> None:
        self.forward = Forward(overload_status=503)
        self.front, self.engine = Side(self._attach), Side(lambda channel: EngineForwarding(app, settled, channel))
        self.channels: list[Channel] = []

    def _attach(self, channel: Channel) -> Forward:
        self.forward.attach(channel)
        return self.forward

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.forward), base_url="http://server")


@asynccontextmanager
async def pair_of(app: ASGIApp) -> AsyncIterator[Pair]:
    pair, loop = Pair(app), asyncio.get_running_loop()
    for side, end in zip((pair.front, pair.engine), socket.socketpair(), strict=True):
        _, channel = await loop.create_unix_connection(lambda side=side: Channel(side), sock=end)  # type: ignore[misc]
        pair.channels.append(channel)
    yield pair
    for channel in pair.channels:
        channel.close()
    await until(lambda: pair.front.is_lost and pair.engine.is_lost)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    is_more = True
    while is_more:
        message = await receive()
        body, is_more = body + message["body"], message.get("more_body", False)
    head = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}".encode()
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-head", head)]})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("nbytes", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * WINDOW_BYTES + 5])
async def test_a_call_is_answered_as_the_engines_application_does(nbytes: int) -> None:
    async with pair_of(echo) as pair, pair.client() as client:
        body = bytes(range(256)) * (nbytes // 256 + 1)
        answer = await client.post("/v2/a%20b?c=d", content=body[:nbytes])
        assert answer.status_code == 201
        assert answer.headers["x-head"] == "POST /v2/a b?c=d"
        assert answer.content == body[:nbytes]


async def test_many_calls_at_once_keep_their_answers_apart() -> None:
    async with pair_of(echo) as pair, pair.client() as client:
        answers = await asyncio.gather(*(client.post(f"/{index}", content=b"%d" % index) for index in range(50)))
        assert [answer.content for answer in answers] == [b"%d" % index for index in range(50)]


async def test_without_an_engine_a_front_end_says_so_and_that_it_lives() -> None:
    async with pair_of(echo) as pair, pair.client() as client:
        pair.channels[1].close()
        await until(lambda: pair.front.is_lost)
        refused = await client.get("/metrics")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "engine process is not there" in refused.json()["error"]
        assert (await client.get("/v2/health/live")).status_code == 200


async def test_a_call_that_the_engine_takes_along_is_answered() -> None:
    is_in = asyncio.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        is_in.set()
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass

    async with pair_of(hang) as pair, pair.client() as client:
        asking = asyncio.create_task(client.get("/slow"))
        await is_in.wait()
        pair.channels[1].close()
        assert (await asking).status_code == 503


async def test_an_application_that_breaks_is_no_answer_that_hangs() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("no")

    async with pair_of(broken) as pair, pair.client() as client:
        assert (await client.get("/")).status_code == 503
        assert (await client.get("/v2/health/live")).status_code == 200


async def test_a_body_without_end_is_refused() -> None:
    async with pair_of(echo) as pair, pair.client() as client:
        answer = await client.post("/v2/logging", content=bytes(MAX_BODY_BYTES + 1))
        assert answer.status_code == 413
        assert "no route but inference takes so much" in answer.json()["error"]
        assert (await client.post("/", content=b"after")).content == b"after"


async def test_a_body_without_end_breaks_off_an_answer_that_has_begun() -> None:
    is_told = asyncio.Event()

    async def hasty(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"so ", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        is_told.set()

    async with pair_of(hasty) as pair:
        has_begun = asyncio.Event()

        async def receive() -> Message:
            await has_begun.wait()
            return {"type": "http.request", "body": bytes(MAX_BODY_BYTES + 1), "more_body": True}

        async def send(message: Message) -> None:
            has_begun.set()

        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        with pytest.raises(ConnectionError, match="in the midst"):
            await asyncio.wait_for(pair.forward(scope, receive, send), 10)
        await asyncio.wait_for(is_told.wait(), 10)


async def test_a_call_that_is_cut_off_leaves_nothing_behind() -> None:
    is_in, is_told = asyncio.Event(), asyncio.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        is_in.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        is_told.set()

    async with pair_of(hang) as pair, pair.client() as client:
        asking = asyncio.create_task(client.get("/slow"))
        await is_in.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.wait_for(is_told.wait(), 10)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_a_client_that_goes_is_told_to_the_application() -> None:
    seen: list[Message] = []

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(await receive())
        seen.append(await receive())

    async with pair_of(watching) as pair:
        messages = [{"type": "http.request", "body": b""}, {"type": "http.disconnect"}]
        sent: list[Message] = []

        async def receive() -> Message:
            return messages.pop(0) if messages else await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        await pair.forward(scope, receive, send)
        await until(lambda: len(seen) == 2)
        assert seen[1]["type"] == "http.disconnect"


async def test_no_more_than_a_window_is_under_way_to_a_client_that_does_not_read() -> None:
    chunks = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal chunks
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100 * WINDOW_BYTES // CHUNK_BYTES):
            await send({"type": "http.response.body", "body": bytes(CHUNK_BYTES), "more_body": True})
            chunks += 1

    async with pair_of(endless) as pair:
        may_read = asyncio.Event()

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError("never set")

        async def send(message: Message) -> None:
            await may_read.wait()

        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        calling = asyncio.create_task(pair.forward(scope, receive, send))
        await until(lambda: chunks >= WINDOW_BYTES // CHUNK_BYTES)
        for _ in range(100):
            await asyncio.sleep(0)
        assert chunks == WINDOW_BYTES // CHUNK_BYTES
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await until(lambda: chunks == 100 * WINDOW_BYTES // CHUNK_BYTES)  # into the void, and to its end


async def test_what_makes_no_sense_ends_the_channel_and_not_the_engine() -> None:
    async with pair_of(echo) as pair:
        pair.channels[0].send(pack_part(Part.HEAD, 1))
        await until(lambda: pair.engine.is_lost)
        assert isinstance(pair.engine.error, Malformed)


@given(st.binary(max_size=64))
def test_no_bytes_break_the_reader_otherwise(content: bytes) -> None:
    for read in (unpack_part, unpack_taken):
        try:
            read(memoryview(content))
        except Malformed:
            continue


@pytest.mark.parametrize("value", [b"", 1, ["a"], (1, 2, 3)])
def test_heads_and_scopes_are_what_they_should_be(value: object) -> None:
    with pytest.raises(Malformed):
        unpack_scope(memoryview(pickle.dumps(value)))
    with pytest.raises(Malformed):
        unpack_head(memoryview(pickle.dumps(value)))
    with pytest.raises(Malformed):
        unpack_scope(memoryview(b"\x80"))


def test_a_part_carries_its_content() -> None:
    frame = pack_part(Part.BODY, 7, b"abc")
    assert unpack_part(memoryview(frame)[HEAD_BYTES:]) == (Part.BODY, 7, memoryview(b"abc"))

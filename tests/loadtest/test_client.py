from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.client import Client
from loadtest.connection import Answer, Endpoint, OnAnswer, parse_url
from loadtest.errors import LoadTestError
from loadtest.processes import free_port
from loadtest.records import Failure
from tests.loadtest.manual_clock import ManualClock
from tests.loadtest.tiny_server import Handler, Reply, Request, TinyServer, reply

S = 1_000_000_000


@asynccontextmanager
async def connected(
    handler: Handler, max_connections: int = 1, clock: ManualClock | None = None
) -> AsyncIterator[tuple[TinyServer, Client]]:
    async with (
        TinyServer(handler) as server,
        Client(server.endpoint, clock or ManualClock(), max_connections=max_connections, timeout_s=30.0) as client,
    ):
        yield server, client


async def echo(request: Request) -> Reply:
    return reply(200, request.body)


def frame(client: Client, body: bytes = b"") -> bytes:
    return client.endpoint.frame("POST", "/p", (("X-A", "1"),), body)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://127.0.0.1:8000", Endpoint("127.0.0.1", 8000)),
        ("http://host", Endpoint("host", 80)),
        ("https://host/prefix/", Endpoint("host", 443, True, "/prefix")),
        ("http://[::1]:9", Endpoint("::1", 9)),
    ],
)
def test_urls(url: str, endpoint: Endpoint) -> None:
    assert parse_url(url) == endpoint


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "http://host:99999"]
)
def test_no_urls(url: str) -> None:
    with pytest.raises(LoadTestError, match=r"http://127\.0\.0\.1:8000"):
        parse_url(url)


def test_framing() -> None:
    framed = Endpoint("::1", 9, prefix="/a").frame("POST", "/b", (("X", "y"),), b"body")
    assert framed == b"POST /a/b HTTP/1.1\r\nHost: [::1]:9\r\nX: y\r\nContent-Length: 4\r\n\r\nbody"


async def test_a_connection_is_kept() -> None:
    async with connected(echo) as (server, client):
        for body in (b"", b"one", b"x" * 600_000):
            answer = await client.fetch(frame(client, body))
            assert (answer.status, answer.failure, answer.body) == (200, None, body)
        assert server.connections == 1
        assert server.requests[0].headers["x-a"] == "1"


async def test_headers_that_matter_are_kept_of_their_own_answer() -> None:
    async def handler(request: Request) -> Reply:
        if request.body:
            return reply(200, b"", "server-timing: q;dur=1", "inference-header-content-length: 12")
        return reply(200)

    async with connected(handler) as (_, client):
        first = await client.fetch(frame(client, b"x"))
        second = await client.fetch(frame(client))
        assert (first.server_timing, first.header_length) == (b"q;dur=1", 12)
        assert (second.server_timing, second.header_length) == (b"", None)


async def test_times_are_stamped_on_the_clock() -> None:
    clock = ManualClock()

    async def handler(request: Request) -> Reply:
        clock.advance(7)
        return reply(200)

    clock.advance(100)
    async with connected(handler, clock=clock) as (_, client):
        answer = await client.fetch(frame(client))
        assert (answer.sent_ns, answer.first_byte_ns, answer.done_ns) == (100, 107, 107)


@pytest.mark.parametrize("status", [400, 503])
async def test_a_refusal_is_an_answer(status: int) -> None:
    async def handler(request: Request) -> Reply:
        return reply(status, b'{"error": "full"}')

    async with connected(handler) as (server, client):
        for _ in range(2):
            answer = await client.fetch(frame(client))
            assert (answer.status, answer.failure, answer.body) == (status, None, b'{"error": "full"}')
        assert server.connections == 1


async def test_chunked_answers() -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"

    async def handler(request: Request) -> Reply:
        return Reply(raw)

    async with connected(handler) as (server, client):
        for _ in range(2):
            assert (await client.fetch(frame(client))).body == b"abcde"
        assert server.connections == 1


async def test_an_announced_close_is_no_failure() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nz", closes=True)

    async with connected(handler) as (server, client):
        for _ in range(3):
            answer = await client.fetch(frame(client))
            assert (answer.failure, answer.body) == (None, b"z")
        assert server.connections == 3


async def test_an_idle_connection_that_was_closed_costs_no_request() -> None:
    async with connected(echo) as (server, client):
        await client.fetch(frame(client, b"1"))
        server.hang_up()
        # Sent before the client can notice.
        answer = await client.fetch(frame(client, b"2"))
        assert (answer.failure, answer.body) == (None, b"2")
        server.hang_up()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await client.fetch(frame(client, b"3"))).body == b"3"


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_close_before_the_end_is_a_failure(raw: bytes) -> None:
    async def handler(request: Request) -> Reply:
        return Reply(raw, closes=True)

    async with connected(handler) as (_, client):
        answer = await client.fetch(frame(client))
        assert (answer.status, answer.failure) == (0, Failure.CLOSED)
        assert b"before the answer was complete" in answer.body


async def test_a_malformed_answer_drops_the_connection() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(b"SMTP 220 hello\r\n\r\n") if request.body == b"bad" else await echo(request)

    async with connected(handler) as (server, client):
        answer = await client.fetch(frame(client, b"bad"))
        assert answer.failure is Failure.MALFORMED
        assert b"SMTP" in answer.body
        assert (await client.fetch(frame(client, b"good"))).body == b"good"
        assert server.connections == 2


async def test_bytes_that_nobody_asked_for_drop_the_connection() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(reply(200, request.body).raw + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!")

    async with connected(handler) as (_, client):
        first = await client.fetch(frame(client, b"a"))
        second = await client.fetch(frame(client, b"b"))
        assert b"a" in first.body
        assert not second.body.startswith(b"a")


async def test_nobody_listens() -> None:
    async with Client(Endpoint("127.0.0.1", free_port()), ManualClock(), max_connections=1) as client:
        for _ in range(2):
            assert (await client.fetch(frame(client))).failure is Failure.CONNECT
        with pytest.raises(LoadTestError, match="is the server running"):
            await client.open(1)


class Held:
    """A handler that keeps every answer back until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, request: Request) -> Reply:
        await self.released.wait()
        return reply(200, request.body)


def collect(into: list[tuple[str, Answer]], name: str) -> OnAnswer:
    return lambda answer: into.append((name, answer))


async def test_a_request_expires_and_its_connection_is_not_used_again() -> None:
    clock, held = ManualClock(), Held()
    async with connected(held, clock=clock) as (server, client):
        request = asyncio.ensure_future(client.fetch(frame(client, b"slow")))
        await server.arrived(1)
        clock.advance(30 * S - 1)
        client.expire()
        assert not request.done()
        clock.advance(1)
        client.expire()
        assert (await request).failure is Failure.TIMEOUT
        held.released.set()
        assert (await client.fetch(frame(client, b"next"))).body == b"next"
        assert server.connections == 2


async def test_connections_are_bounded_and_requests_wait_in_order() -> None:
    held, seen = Held(), list[tuple[str, Answer]]()
    async with connected(held, max_connections=2) as (server, client):
        for index in range(5):
            client.send(frame(client, b"%d" % index), collect(seen, str(index)))
        await server.arrived(2)
        assert not seen
        held.released.set()
        await server.arrived(5)
        await client.fetch(frame(client, b"last"))
        assert [request.body for request in server.requests[2:5]] == [b"2", b"3", b"4"]
        assert server.connections == 2
        assert all(answer.body == name.encode() for name, answer in seen)


async def test_abandoned_requests_are_answered_once() -> None:
    held, seen = Held(), list[tuple[str, Answer]]()
    async with connected(held, max_connections=1) as (server, client):
        for name in ("sent", "waiting"):
            client.send(frame(client), collect(seen, name))
        await server.arrived(1)
        client.abandon()
        client.abandon()
        held.released.set()
        for _ in range(5):
            await asyncio.sleep(0)
    assert sorted(name for name, _ in seen) == ["sent", "waiting"]
    assert {answer.failure for _, answer in seen} == {Failure.UNANSWERED}
    assert {name: answer.sent_ns for name, answer in seen} == {"sent": 0, "waiting": None}


async def test_a_request_abandoned_while_it_connects_is_answered_once() -> None:
    seen: list[tuple[str, Answer]] = []
    async with connected(echo) as (_, client):
        client.send(frame(client), collect(seen, "connecting"))
        client.abandon()
        for _ in range(10):
            await asyncio.sleep(0)
        assert [answer.failure for _, answer in seen] == [Failure.UNANSWERED]
        assert (await client.fetch(frame(client, b"next"))).body == b"next"


async def test_an_answer_may_send_the_next_request() -> None:
    bodies: list[bytes] = []
    async with connected(echo) as (server, client):
        done = asyncio.Event()

        def again(answer: Answer) -> None:
            bodies.append(answer.body)
            if len(bodies) < 50:
                client.send(frame(client, b"%d" % len(bodies)), again)
            else:
                done.set()

        client.send(frame(client, b"0"), again)
        await done.wait()
        assert bodies == [b"%d" % index for index in range(50)]
        assert server.connections == 1


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(1, 30), max_size=8), is_chunked=st.booleans())
def test_answers_may_arrive_in_any_pieces(cuts: list[int], is_chunked: bool) -> None:
    framing = (
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" if is_chunked else b"Content-Length: 3\r\n\r\nabc"
    )
    raw = b"HTTP/1.1 200 OK\r\nServer-Timing: q;dur=1\r\n" + framing

    async def handler(request: Request) -> Reply:
        return Reply(raw, cuts=cuts)

    async def run() -> Answer:
        async with connected(handler) as (_, client):
            return await client.fetch(frame(client))

    answer = asyncio.run(run())
    assert (answer.status, answer.body, answer.server_timing) == (200, b"abc", b"q;dur=1")

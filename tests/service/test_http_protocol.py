"""Connections on a loop whose timers the test fires, and a transport that keeps what is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.http_protocol import LINGER_S, MAX_HEAD_BYTES, ConnectionLimits, GuardedProtocol

HEAD_TIMEOUT_S = 3.0
KEEP_ALIVE_S = 75
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


async def never_runs(scope: object, receive: object, send: object) -> None:
    raise AssertionError("the loop of these tests runs no request")


class Timer:
    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Keeps timers; what the server would run for a request is dropped, so no request is ever answered by itself."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, callback))
        return self.timers[-1]

    def create_task(self, coroutine: Any, **_: Any) -> asyncio.Future[None]:
        coroutine.close()
        return asyncio.get_running_loop().create_future()

    @property
    def delays_s(self) -> list[float]:
        return [timer.delay_s for timer in self.timers if not timer.is_cancelled]

    def fire(self, delay_s: float) -> None:
        (timer,) = [timer for timer in self.timers if timer.delay_s == delay_s and not timer.is_cancelled]
        self.timers.remove(timer)
        timer.callback()


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.has_ended = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Server:
    """Makes connections as uvicorn does."""

    def __init__(self, max_connections: int = 8, overload_status: int = 503) -> None:
        self.limits = ConnectionLimits(HEAD_TIMEOUT_S, max_connections, overload_status)
        self.config = uvicorn.Config(
            never_runs, interface="asgi3", log_config=None, timeout_keep_alive=KEEP_ALIVE_S, ws="none"
        )
        self.state = ServerState()

    def connect(self) -> Connection:
        return Connection(self)


class Connection:
    def __init__(self, server: Server) -> None:
        self.loop = Loop()
        self.transport = Transport()
        self.protocol = GuardedProtocol(
            server.limits,
            config=server.config,
            server_state=server.state,
            app_state={},
            _loop=self.loop,  # type: ignore[arg-type]
        )
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.protocol.data_received(part)

    def answer(self) -> None:
        """What uvicorn does when the application has answered the oldest request."""
        self.protocol.cycle.response_complete = True
        self.protocol.on_response_complete()

    @property
    def refusal(self) -> tuple[int, dict[str, str], str]:
        head, _, body = self.transport.written.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert int(headers["content-length"]) == len(body)
        assert headers["content-type"] == "application/json"
        assert headers["connection"] == "close"
        return int(status.split()[1]), headers, json.loads(body)["error"]


@pytest.fixture
async def connection() -> Connection:
    return Server().connect()


async def test_a_connection_that_says_nothing_is_closed_as_an_idle_one(connection: Connection) -> None:
    assert connection.loop.delays_s == [KEEP_ALIVE_S]
    connection.loop.fire(KEEP_ALIVE_S)
    assert connection.transport.is_closed
    assert connection.transport.written == b""


@pytest.mark.parametrize("parts", [[b"G"], [b"GET / HTTP/1.1\r\n"], [b"\r\n"], [GET[:1], GET[1:9], GET[9:-1]]])
async def test_a_slow_head_is_cut_off_and_told_why(connection: Connection, parts: list[bytes]) -> None:
    """However its bytes trickle: they do not prolong its time."""
    connection.send(*parts)
    assert connection.loop.delays_s == [HEAD_TIMEOUT_S]
    connection.loop.fire(HEAD_TIMEOUT_S)
    status, _, error = connection.refusal
    assert status == 408
    assert error == "the request's head was not complete 3 seconds after its first byte; send it without pauses"
    assert connection.transport.is_closed


@pytest.mark.parametrize(
    "parts", [[GET], [GET[:5], GET[5:]], [POST + b"body"], [POST, b"bo"], [POST, b"bo", b"dy"], [POST[:9], POST[9:]]]
)
async def test_a_complete_head_ends_its_time(connection: Connection, parts: list[bytes]) -> None:
    """Then the application watches the body."""
    connection.send(*parts)
    assert connection.loop.delays_s == []
    assert not connection.transport.is_closed


async def test_a_kept_connection_has_a_time_for_each_head(connection: Connection) -> None:
    for _ in range(2):
        connection.send(POST, b"body")
        connection.answer()
        assert connection.loop.delays_s == [KEEP_ALIVE_S]
        connection.send(POST[:7])
        assert connection.loop.delays_s == [HEAD_TIMEOUT_S]
        connection.send(POST[7:], b"body")
        assert connection.loop.delays_s == []
        connection.answer()


async def test_a_head_after_a_body_that_was_refused_unread_has_its_time_too(connection: Connection) -> None:
    connection.send(POST)
    connection.answer()
    connection.send(b"body", b"GET")
    assert connection.loop.delays_s == [HEAD_TIMEOUT_S]


async def test_a_slow_pipelined_head_spoils_no_answer_that_is_under_way(connection: Connection) -> None:
    connection.send(GET, b"GET")
    connection.loop.fire(HEAD_TIMEOUT_S)
    assert connection.transport.written == b""
    assert connection.transport.is_closed


async def test_a_head_without_end_is_refused(connection: Connection) -> None:
    connection.send(b"GET / HTTP/1.1\r\n", *[b"a: " + b"b" * 1000 + b"\r\n"] * (MAX_HEAD_BYTES // 1005))
    assert not connection.transport.is_closed
    connection.send(b"a: " + b"b" * 1000)
    status, _, error = connection.refusal
    assert (status, error) == (
        413,
        "the request's head exceeds 65536 bytes; send fewer or shorter headers",
    )
    assert connection.transport.is_closed
    assert connection.loop.delays_s == []


async def test_heads_are_counted_apart(connection: Connection) -> None:
    for _ in range(3):
        connection.send(b"GET / HTTP/1.1\r\na: ", b"b" * (MAX_HEAD_BYTES // 2), b"\r\n\r\n")
        connection.answer()
    assert not connection.transport.is_closed


async def test_what_is_not_http_is_answered_in_json(connection: Connection) -> None:
    connection.send(b"\x16\x03\x01 hello")
    status, _, error = connection.refusal
    assert (status, error) == (400, "Invalid HTTP request received; send HTTP/1.1")
    assert connection.transport.is_closed
    assert connection.loop.delays_s == []


@pytest.mark.parametrize("overload_status", [503, 429])
async def test_a_connection_too_many_is_told_so(overload_status: int) -> None:
    server = Server(max_connections=2, overload_status=overload_status)
    kept = [server.connect(), server.connect()]
    refused = server.connect()
    assert refused.transport.written == b""
    refused.send(POST, b"bo", b"dy")
    status, headers, error = refused.refusal
    assert status == overload_status
    assert headers["Retry-After"] == "1"
    assert error.startswith("the server has its 2 connections; retry later")
    assert refused.transport.has_ended
    assert not refused.transport.is_closed
    assert refused.loop.delays_s == [LINGER_S]
    refused.loop.fire(LINGER_S)
    assert refused.transport.is_closed
    for connection in kept:
        connection.send(GET)
        assert connection.transport.written == b""


async def test_a_silent_connection_too_many_is_closed_soon() -> None:
    server = Server(max_connections=1)
    server.connect()
    refused = server.connect()
    refused.loop.fire(LINGER_S)
    assert refused.transport.is_closed
    assert refused.transport.written == b""


async def test_a_place_that_comes_free_is_taken() -> None:
    server = Server(max_connections=1)
    first = server.connect()
    server.connect().send(GET)
    first.protocol.connection_lost(None)
    second = server.connect()
    second.send(GET)
    assert second.transport.written == b""


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
@pytest.mark.parametrize("parts", [[], [b"GET"], [GET]])
async def test_a_connection_that_is_lost_leaves_no_timer(
    connection: Connection, parts: list[bytes], error: Exception | None
) -> None:
    connection.send(*parts)
    connection.protocol.connection_lost(error)
    assert connection.loop.delays_s == []

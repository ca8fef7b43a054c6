"""What a client may take of a connection: time, room for requests that wait, a place among the others."""

from __future__ import annotations

import pytest

from service.http_protocol import LINGER_S, PROBE_AFTER_S, SLICE_BYTES
from tests.doubles.http_connection import (
    BODY_TIMEOUT_S,
    CHUNKED_POST,
    GET,
    KEEP_ALIVE_S,
    POST,
    SEND_TIMEOUT_S,
    Connection,
    Server,
)


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
    assert connection.loop.delays_s == [BODY_TIMEOUT_S]
    connection.loop.fire(BODY_TIMEOUT_S)
    status, _, error = connection.refusal
    assert status == 408
    assert error == "the request's head was not complete 3 seconds after its first byte; send it without pauses"
    assert connection.has_ended()


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
        assert connection.loop.delays_s == [BODY_TIMEOUT_S]
        connection.send(POST[7:], b"body")
        assert connection.loop.delays_s == []
        connection.answer()


async def test_a_head_after_a_body_that_was_not_read_has_its_time_too(connection: Connection) -> None:
    connection.send(POST)
    connection.answer()
    connection.send(b"body", b"GET")
    assert connection.loop.delays_s == [BODY_TIMEOUT_S]
    connection.loop.fire(BODY_TIMEOUT_S)
    assert connection.refusal[0] == 408


async def test_a_slow_pipelined_head_spoils_no_answer_that_is_under_way(connection: Connection) -> None:
    connection.send(GET, b"GET")
    connection.loop.fire(BODY_TIMEOUT_S)
    assert connection.transport.written == b""
    connection.answer()
    assert connection.refusal[0] == 408
    assert connection.has_ended()


LARGE_POST = b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n%s\r\n"


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        (LARGE_POST % b"", [bytes(100_000)] * 10),
        (CHUNKED_POST, [b"%x\r\n" % 100_000, *[bytes(50_000)] * 2, b"\r\n0\r\nt: x\r\n\r\n"]),
    ],
)
async def test_the_body_of_an_answered_request_is_dropped_and_the_connection_kept(
    connection: Connection, head: bytes, parts: list[bytes]
) -> None:
    connection.send(head)
    connection.answer()
    for part in parts[:-1]:
        connection.send(part)
        assert connection.loop.delays_s == [BODY_TIMEOUT_S]
    connection.send(parts[-1])
    assert connection.loop.delays_s == [KEEP_ALIVE_S]
    connection.send(GET)
    assert len(connection.loop.started) == 1
    assert connection.transport.written == b""


async def test_the_body_of_an_answered_request_has_its_time(connection: Connection) -> None:
    connection.send(LARGE_POST % b"")
    connection.answer()
    connection.send(b"some of it")
    connection.loop.fire(BODY_TIMEOUT_S)
    assert connection.transport.is_closed


@pytest.mark.parametrize("close", [b"Connection: close\r\n", b""])
async def test_an_answer_behind_which_the_connection_ends_can_be_read_by_who_still_sends(
    connection: Connection, close: bytes
) -> None:
    """At shut-down the server ends connections too."""
    connection.send(LARGE_POST % close)
    connection.protocol.cycle.keep_alive = False
    connection.answer()
    assert connection.transport.has_ended
    connection.send(bytes(100_000))
    assert not connection.transport.is_closed
    connection.loop.fire(BODY_TIMEOUT_S)
    assert connection.transport.is_closed


async def test_a_connection_that_asked_for_a_close_is_closed(connection: Connection) -> None:
    connection.send(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    connection.answer()
    assert connection.transport.is_closed


@pytest.mark.parametrize("size", [1, 18, 100, 1 << 20])
async def test_few_requests_wait_and_the_rest_is_not_parsed_nor_read(connection: Connection, size: int) -> None:
    """However the client cuts its requests; each is served in the end."""
    requests = GET * 1000
    for start in range(0, len(requests), size):
        if not connection.transport.is_read:
            break
        connection.send(requests[start : start + size])
    rest = requests[start:] if size < len(requests) else b""
    assert not connection.transport.is_read
    assert connection.loop.delays_s == []
    served = 0
    while connection.loop.started:
        assert len(connection.loop.started) == 1
        assert len(connection.protocol.pipeline) <= SLICE_BYTES // len(GET) + 1
        connection.answer()
        served += 1
        while rest and connection.transport.is_read:
            connection.send(rest[:size])
            rest = rest[size:]
    assert served == 1000
    assert connection.transport.is_read
    assert connection.loop.delays_s == [KEEP_ALIVE_S]


async def test_a_request_that_reads_its_body_lets_no_more_in_while_another_waits(connection: Connection) -> None:
    connection.send(GET + GET)
    connection.loop.started[0].flow.resume_reading()
    assert not connection.transport.is_read


async def test_what_waits_behind_an_answer_that_ends_the_connection_is_not_served(connection: Connection) -> None:
    """At shut-down, or where the application failed in the midst of its answer."""
    connection.send(GET * 100)
    connection.loop.started[0].keep_alive = False
    connection.answer()
    assert connection.loop.started == []
    assert connection.has_ended()


async def test_an_answer_that_is_not_taken_costs_the_client_its_connection(connection: Connection) -> None:
    connection.send(GET)
    connection.protocol.pause_writing()
    connection.protocol.resume_writing()
    assert connection.loop.delays_s == []
    connection.protocol.pause_writing()
    connection.answer()
    connection.loop.fire(SEND_TIMEOUT_S)
    assert connection.transport.is_aborted


async def test_what_is_left_of_an_answer_at_a_close_has_its_time_too(connection: Connection) -> None:
    """Little of it resumes writing, and is no reason to wait for ever."""
    connection.transport.unsent_bytes = 100
    connection.loop.fire(KEEP_ALIVE_S)
    connection.protocol.resume_writing()
    connection.loop.fire(SEND_TIMEOUT_S)
    assert connection.transport.is_aborted


@pytest.mark.parametrize("count", [1, 3])
async def test_a_client_that_ended_its_side_is_answered(connection: Connection, count: int) -> None:
    connection.send(GET * count)
    assert connection.protocol.eof_received()
    for _ in range(count):
        assert not connection.transport.is_closed
        connection.answer()
    assert connection.transport.is_closed
    assert connection.transport.written == b""
    assert connection.loop.delays_s == []


@pytest.mark.parametrize("parts", [[], [GET[:9]], [POST], [POST, b"bo"]])
async def test_a_client_that_ended_in_the_midst_is_gone(connection: Connection, parts: list[bytes]) -> None:
    connection.send(*parts)
    assert not connection.protocol.eof_received()
    assert connection.transport.is_closed


async def test_a_client_that_ended_its_side_is_asked_whether_it_listens(connection: Connection) -> None:
    """Ever less often: one that has left answers the first with a reset."""
    connection.send(GET)
    connection.protocol.eof_received()
    for doublings in range(3):
        connection.loop.fire(PROBE_AFTER_S * 2**doublings)
    assert connection.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n" * 3
    connection.loop.started[0].response_started = True
    connection.loop.fire(PROBE_AFTER_S * 8)
    assert len(connection.transport.written) == 3 * 25


async def test_a_client_of_http_1_0_cannot_be_asked_and_is_soon_taken_for_gone(connection: Connection) -> None:
    connection.send(b"GET / HTTP/1.0\r\n\r\n")
    connection.protocol.eof_received()
    connection.loop.fire(PROBE_AFTER_S)
    assert connection.transport.is_aborted
    assert connection.transport.written == b""


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

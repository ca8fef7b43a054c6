"""What connections make of heads and bodies that are too large, are none, or ask for another protocol."""

from __future__ import annotations

import logging

import pytest

from service.http_messages import MAX_HEAD_BYTES
from service.http_protocol import SLICE_BYTES
from tests.doubles.http_connection import (
    CHUNKED_POST,
    GET,
    Connection,
    Server,
)


@pytest.fixture
async def connection() -> Connection:
    return Server().connect()


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET / HTTP/1.1\r\n", *[b"a: " + b"b" * 1000 + b"\r\n"] * (MAX_HEAD_BYTES // 1005 + 1)],
        [b"GET / HTTP/1.1\r\na: ", *[b"b" * 30_000] * 3],
        [b"GET /", *[b"b" * 30_000] * 3],
        [b"GET / HTTP/1.1\r\na: " + b"b" * (MAX_HEAD_BYTES + SLICE_BYTES) + b"\r\n\r\n"],
        [b"\r\n" * (MAX_HEAD_BYTES // 2 + 1)],
    ],
)
async def test_a_head_without_end_is_refused(connection: Connection, parts: list[bytes]) -> None:
    connection.send(*parts[:-1])
    assert not connection.transport.has_ended
    connection.send(parts[-1])
    status, _, error = connection.refusal
    assert (status, error) == (413, "the request's head exceeds 65536 bytes; send fewer or shorter headers")
    assert connection.has_ended()


@pytest.mark.parametrize("begin", [b"1;a=", b"1\r\na\r\n0\r\nt: "])
async def test_what_surrounds_a_chunked_body_is_bounded_too(connection: Connection, begin: bytes) -> None:
    connection.send(CHUNKED_POST, begin)
    for _ in range(3):
        connection.send(b"b" * 30_000)
    assert connection.refusal[0] == 413
    assert connection.loop.started[0].disconnected
    assert connection.has_ended()


async def test_what_follows_a_chunked_body_is_no_header(connection: Connection) -> None:
    connection.send(CHUNKED_POST, b"0\r\nauthorization: Bearer x\r\n\r\n")
    assert [name for name, _ in connection.loop.started[0].scope["headers"]] == [b"transfer-encoding"]


async def test_heads_are_counted_apart(connection: Connection) -> None:
    for _ in range(3):
        connection.send(b"GET / HTTP/1.1\r\na: ", b"b" * (MAX_HEAD_BYTES // 2), b"\r\n\r\n")
        connection.answer()
    assert not connection.transport.is_closed


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (b"\x16\x03\x01 hello", 400, "the request cannot be read: Invalid method encountered; send HTTP/1.1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "cannot be read"),
        (b"CONNECT example:443 HTTP/1.1\r\n\r\n", 400, "the request's target cannot be read"),
        (b"GET http:/// HTTP/1.1\r\n\r\n", 400, "the request's target cannot be read"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "Content-Length"),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
            "is 'gzip, chunked', supported is 'chunked'",
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0 has no Transfer-Encoding"),
    ],
)
async def test_what_is_not_http_is_answered_in_json(
    connection: Connection, caplog: pytest.LogCaptureFixture, sent: bytes, status: int, says: str
) -> None:
    """And no line is logged: its sender would fill the disk."""
    with caplog.at_level(logging.INFO):
        connection.send(sent)
    assert connection.refusal[0] == status
    assert says in connection.refusal[2]
    assert connection.has_ended()
    assert caplog.records == []


async def test_the_answers_before_what_is_not_http_are_given(connection: Connection) -> None:
    connection.send(GET + GET + b"?" * 9)
    connection.answer()
    assert connection.transport.written == b""
    connection.answer()
    assert connection.refusal[0] == 400
    assert connection.has_ended()


@pytest.mark.parametrize("is_pipelined", [False, True])
async def test_a_request_with_a_broken_body_is_refused_and_its_task_told(
    connection: Connection, is_pipelined: bool
) -> None:
    if is_pipelined:
        connection.send(GET + CHUNKED_POST + b"zz\r\n")
        connection.answer()
    else:
        connection.send(CHUNKED_POST, b"zz\r\n")
        assert connection.loop.started[0].disconnected
    assert connection.refusal[0] == 400
    assert connection.has_ended()


async def test_a_body_that_breaks_behind_its_answer_ends_the_connection_without_a_word(connection: Connection) -> None:
    connection.send(CHUNKED_POST)
    connection.answer()
    connection.send(b"zz\r\n")
    assert connection.transport.written == b""
    assert connection.has_ended()


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\n"


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"xyz"])
@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    ("head", "body", "content"),
    [
        (b"GET / HTTP/1.1\r\n", b"", b""),
        (b"POST / HTTP/1.1\r\nContent-Length: 4\r\n", b"body", b"body"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", b"4\r\nbody\r\n0\r\n\r\n", b"body"),
    ],
)
async def test_an_upgrade_is_passed_over_and_its_request_served(
    connection: Connection, protocol: bytes, size: int, head: bytes, body: bytes, content: bytes
) -> None:
    sent = head + UPGRADE % protocol + b"\r\n" + body
    for start in range(0, len(sent), size):
        connection.send(sent[start : start + size])
    (cycle,) = connection.loop.started
    assert (bytes(cycle.body), cycle.more_body, cycle.keep_alive) == (content, False, True)
    assert (b"upgrade", protocol) in cycle.scope["headers"]
    assert len(cycle.scope["headers"]) == sent.count(b": ")
    connection.answer()
    connection.send(GET)
    assert len(connection.loop.started) == 1

"""Answers as tasks write them: what leaves in one write, and what does not wait."""

from __future__ import annotations

import pytest

from service.http_transport import MAX_JOINED_BYTES, AnswerTransport
from tests.doubles.http_connection import GET, POST, Loop, Server, Transport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LARGE = bytes(MAX_JOINED_BYTES + 1)


class Wire:
    """A transport's answers, and what of them has been written."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.transport = Transport()
        self.answers = AnswerTransport(self.transport, self.loop, self.transport.close)  # type: ignore[arg-type]

    def write(self, *parts: bytes) -> list[bytes]:
        for part in parts:
            self.answers.write(part)
        return self.transport.writes


@pytest.mark.parametrize(
    ("parts", "writes"),
    [
        ([HEAD, b"body"], [HEAD + b"body"]),
        ([HEAD, b""], [HEAD]),
        ([HEAD, b"bo", b"dy"], [HEAD + b"bo", b"dy"]),
        ([HEAD, LARGE], [HEAD, LARGE]),
        ([HEAD, LARGE[:-1]], [HEAD + LARGE[:-1]]),
        ([CONTINUE, HEAD, b"body"], [CONTINUE, HEAD + b"body"]),
        ([CONTINUE], [CONTINUE]),
    ],
)
def test_a_head_leaves_with_the_first_part_of_its_body(parts: list[bytes], writes: list[bytes]) -> None:
    wire = Wire()
    assert wire.write(*parts) == writes
    wire.loop.turn()
    assert wire.transport.writes == writes


def test_a_body_that_comes_later_does_not_hold_up_its_head() -> None:
    wire = Wire()
    assert wire.write(HEAD) == []
    wire.loop.turn()
    assert wire.transport.writes == [HEAD]
    assert wire.write(b"bo", b"dy") == [HEAD, b"bo", b"dy"]


def test_an_answer_without_a_body_is_written_when_it_ends() -> None:
    wire = Wire()
    wire.write(HEAD)
    wire.answers.end_answer()
    assert wire.transport.writes == [HEAD]
    wire.loop.turn()
    assert wire.transport.writes == [HEAD]


def test_every_answer_has_a_head_of_its_own() -> None:
    wire = Wire()
    for _ in range(3):
        wire.write(HEAD, b"body")
        wire.answers.end_answer()
    assert wire.transport.writes == [HEAD + b"body"] * 3


def test_a_close_comes_behind_the_head() -> None:
    wire = Wire()
    wire.write(HEAD)
    wire.answers.close()
    assert wire.transport.writes == [HEAD]
    assert wire.transport.is_closed


def test_a_head_is_not_written_to_a_connection_that_has_gone() -> None:
    wire = Wire()
    wire.write(HEAD)
    wire.transport.abort()
    wire.loop.turn()
    assert wire.transport.writes == []


@pytest.mark.parametrize("parts", [[b"\x00"], [POST, b"body", b"\x00"]])
async def test_a_refusal_of_what_follows_comes_behind_a_head_that_waits(parts: list[bytes]) -> None:
    """What follows arrives in the same turn as the head is written."""
    connection = Server().connect()
    connection.send(GET)
    cycle = connection.loop.started[0]
    cycle.transport.write(HEAD)
    connection.send(*parts)
    connection.answer()
    assert connection.transport.written.startswith(HEAD)


async def test_a_client_that_leaves_in_the_midst_of_its_body_finds_the_head_that_waits() -> None:
    connection = Server().connect()
    connection.send(POST, b"bo")
    connection.loop.started[0].transport.write(HEAD)
    connection.protocol.eof_received()
    assert connection.transport.writes == [HEAD]
    assert connection.transport.is_closed

from __future__ import annotations

import asyncio
import logging

import pytest
from websockets.frames import Close, CloseCode, Frame, Opcode

from service.websocket.protocol import CLOSE_TIMEOUT_S, FRAMES_AT_ONCE, PING_INTERVAL_S, Disconnected
from tests.doubles.websocket_connection import (
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMEOUT_S,
    SEND_TIMEOUT_S,
    WebSocketConnection,
    binary,
    text,
)

CLOSE = Frame(Opcode.CLOSE, Close(1000, "done").serialize())


@pytest.fixture
async def connection() -> WebSocketConnection:
    return await WebSocketConnection().opened()


async def test_a_handshake_is_accepted_with_a_subprotocol():
    connection = WebSocketConnection()
    assert not connection.transport.is_read
    await connection.receive()
    await connection.send({"type": "websocket.accept", "subprotocol": "bearer"})
    head, _, rest = connection.transport.written.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 101 Switching Protocols",
        b"upgrade: websocket",
        b"sec-websocket-accept: yes",
        b"sec-websocket-protocol: bearer",
    ]
    assert rest == b""


async def test_a_handshake_is_refused_as_a_request():
    connection = WebSocketConnection()
    headers = [(b"content-length", b"2")]
    await connection.send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
    await connection.send({"type": "websocket.http.response.body", "body": b"{}"})
    assert (
        connection.transport.written == b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
    )
    assert connection.transport.is_closed


async def test_a_close_instead_of_an_answer_is_a_refusal():
    connection = WebSocketConnection()
    await connection.send({"type": "websocket.close", "code": 1008})
    assert connection.transport.written.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert connection.transport.is_closed


async def test_messages_are_read_one_at_a_time(connection: WebSocketConnection):
    """What lies behind the awaited message stays where it is, in the client's hands as far as it can."""
    waiting = await connection.awaiting()
    assert connection.transport.is_read
    connection.client_sends(text("hello"), binary(b"second"), binary(b"third"))
    assert not connection.transport.is_read
    first = await waiting
    assert (first["type"], first["text"], first["held_bytes"], first["received_ns"]) == (
        "websocket.receive",
        "hello",
        5,
        1,
    )
    assert connection.budget.held_bytes == 5
    assert bytes((await connection.receive())["bytes"]) == b"second"
    assert bytes((await connection.receive())["bytes"]) == b"third"
    assert not connection.transport.is_read
    assert not (await connection.awaiting()).done()
    assert connection.transport.is_read


async def test_what_an_application_leaves_unread_is_given_back(connection: WebSocketConnection):
    """It gave up waiting, and the message that it had asked for came all the same."""
    waiting = await connection.awaiting()
    waiting.cancel()
    await asyncio.sleep(0)
    connection.client_sends(binary(b"too late"))
    assert connection.budget.held_bytes == 8
    connection.may_return.set()
    await asyncio.gather(*connection.state.tasks)
    assert connection.budget.held_bytes == 0


async def test_text_is_sent_unmasked(connection: WebSocketConnection):
    await connection.send({"type": "websocket.send", "text": "grüße"})
    assert connection.transport.written == b"\x81\x07" + "grüße".encode()


async def test_a_ping_is_answered_with_what_it_says(connection: WebSocketConnection):
    await connection.awaiting()
    connection.client_sends(Frame(Opcode.PING, b"are you there?"), Frame(Opcode.PONG, b""))
    assert connection.transport.written == b"\x8a\x0eare you there?"


async def test_pings_of_a_client_that_does_not_read_are_not_answered(connection: WebSocketConnection):
    await connection.awaiting()
    connection.protocol.pause_writing()
    connection.client_sends(*[Frame(Opcode.PING, b"x")] * 100)
    assert connection.transport.written == b""


@pytest.mark.parametrize("sent", [Frame(Opcode.CONT, b"", False), Frame(Opcode.PING, b"x"), Frame(Opcode.PONG, b"")])
async def test_a_flood_of_small_frames_lets_others_be_served(connection: WebSocketConnection, sent: Frame):
    task = await connection.awaiting()
    flood = [Frame(Opcode.BINARY, b"a", False), *[sent] * (3 * FRAMES_AT_ONCE), Frame(Opcode.CONT, b"b")]
    connection.client_sends(*flood)
    turns = 0
    while 0.0 in connection.loop.delays_s:
        assert not connection.transport.is_read, "unread, so that what was read cannot pile up"
        assert not task.done()
        connection.loop.fire(0.0)
        await asyncio.sleep(0)
        turns += 1
    assert turns == 3
    assert bytes((await task)["bytes"]) == b"ab"
    assert connection.transport.written.count(b"x") == 3 * FRAMES_AT_ONCE * (sent.opcode is Opcode.PING)
    again = await connection.awaiting()
    assert connection.transport.is_read
    again.cancel()


async def test_a_flood_that_breaks_the_protocol_is_not_looked_at_any_more(connection: WebSocketConnection):
    task = await connection.awaiting()
    connection.client_sends(*[Frame(Opcode.PONG, b"")] * (FRAMES_AT_ONCE + 3), Frame(Opcode.CONT, b""))
    connection.protocol.shutdown()
    assert (await task)["code"] == 1001
    receiving = await connection.awaiting()
    assert (await receiving)["code"] == 1002
    connection.loop.fire(0.0)
    assert connection.closed_with is not None
    assert connection.closed_with.code == 1002
    assert connection.transport.is_read


async def test_a_close_is_echoed_and_told(connection: WebSocketConnection):
    waiting = await connection.awaiting()
    connection.client_sends(CLOSE)
    event = await waiting
    assert (event["type"], event["code"], event["reason"], event["is_stopping"]) == (
        "websocket.disconnect",
        1000,
        "done",
        False,
    )
    assert connection.closed_with == Close(1000, "done")
    assert connection.transport.is_closed
    with pytest.raises(Disconnected):
        await connection.send({"type": "websocket.send", "text": "late"})


async def test_an_empty_close_is_echoed_empty(connection: WebSocketConnection):
    await connection.awaiting()
    connection.client_sends(Frame(Opcode.CLOSE, b""))
    assert connection.transport.written == b"\x88\x00"


async def test_a_close_of_ours_waits_for_the_clients(connection: WebSocketConnection):
    await connection.send({"type": "websocket.close", "code": 1013, "reason": "later"})
    assert connection.closed_with == Close(CloseCode.TRY_AGAIN_LATER, "later")
    assert not connection.transport.is_closed
    connection.client_sends(binary(b"on its way"), text("too"), CLOSE)
    assert connection.transport.is_closed
    assert connection.budget.held_bytes == 0
    assert connection.transport.written.count(b"\x88") == 1


async def test_a_client_that_does_not_answer_a_close_is_not_waited_for(connection: WebSocketConnection):
    await connection.send({"type": "websocket.close"})
    connection.loop.fire(CLOSE_TIMEOUT_S)
    assert connection.transport.is_closed


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (binary(b"x").serialize(mask=False), 1002),
        (Frame(Opcode.TEXT, b"\xff").serialize(mask=True), 1007),
        (binary(bytes(MAX_MESSAGE_BYTES + 1)).serialize(mask=True), 1009),
    ],
)
async def test_a_violation_ends_the_connection_and_what_follows_is_thrown_away(
    connection: WebSocketConnection, sent: bytes, code: int
):
    waiting = await connection.awaiting()
    connection.client_sends_bytes(sent + bytes(300_000))
    event = await waiting
    assert (event["type"], event["code"]) == ("websocket.disconnect", code)
    assert connection.closed_with is not None
    assert connection.closed_with.code == code
    assert connection.budget.held_bytes == 0
    assert connection.transport.has_ended
    assert not connection.transport.is_closed
    connection.loop.fire(CLOSE_TIMEOUT_S)
    assert connection.transport.is_closed


async def test_a_message_has_its_time_from_its_first_byte(connection: WebSocketConnection):
    waiting = await connection.awaiting()
    assert connection.loop.delays_s == [PING_INTERVAL_S]
    sent = binary(bytes(1000)).serialize(mask=True)
    connection.client_sends_bytes(sent[:100])
    connection.client_sends_bytes(sent[100:900], 10)
    assert connection.loop.delays_s == [MESSAGE_TIMEOUT_S, PING_INTERVAL_S]
    connection.client_sends_bytes(sent[900:])
    assert connection.loop.delays_s == [PING_INTERVAL_S]
    assert len((await waiting)["bytes"]) == 1000


async def test_a_slow_message_ends_the_connection(connection: WebSocketConnection):
    waiting = await connection.awaiting()
    connection.client_sends_bytes(binary(bytes(1000)).serialize(mask=True)[:500])
    connection.loop.fire(MESSAGE_TIMEOUT_S)
    event = await waiting
    assert event["code"] == CloseCode.POLICY_VIOLATION
    assert connection.closed_with is not None
    assert connection.closed_with.reason == "a message did not arrive within 3 s; send it without pauses"
    connection.lose()
    assert connection.budget.held_bytes == 0


async def test_a_client_that_does_not_read_loses_its_connection(connection: WebSocketConnection):
    connection.protocol.pause_writing()
    sending = asyncio.create_task(connection.send({"type": "websocket.send", "text": "x"}))
    await asyncio.sleep(0)
    assert not sending.done()
    connection.protocol.resume_writing()
    await sending
    connection.protocol.pause_writing()
    sending = asyncio.create_task(connection.send({"type": "websocket.send", "text": "x"}))
    await asyncio.sleep(0)
    connection.loop.fire(SEND_TIMEOUT_S)
    assert connection.transport.is_aborted
    connection.protocol.connection_lost(None)
    with pytest.raises(Disconnected):
        await sending


async def test_a_client_that_is_silent_is_asked_and_then_taken_for_gone(connection: WebSocketConnection):
    await connection.awaiting()
    connection.loop.fire(PING_INTERVAL_S)
    assert connection.transport.written == b"\x89\x00"
    connection.client_sends(Frame(Opcode.PONG, b""))
    connection.loop.fire(PING_INTERVAL_S)
    assert connection.transport.written == b"\x89\x00" * 2
    connection.loop.fire(PING_INTERVAL_S)
    assert connection.transport.is_aborted


async def test_a_client_that_is_not_read_is_not_judged(connection: WebSocketConnection):
    for _ in range(3):
        connection.loop.fire(PING_INTERVAL_S)
    assert not connection.transport.is_closed


async def test_a_lost_connection_is_told_and_leaves_nothing(connection: WebSocketConnection):
    waiting = await connection.awaiting()
    connection.client_sends_bytes(binary(bytes(1000)).serialize(mask=True)[:500])
    assert connection.state.connections
    connection.lose()
    assert (await waiting)["code"] == CloseCode.ABNORMAL_CLOSURE
    assert (connection.budget.held_bytes, connection.loop.delays_s, connection.state.connections) == (0, [], set())


async def test_a_client_that_ends_its_side_has_gone(connection: WebSocketConnection):
    assert connection.protocol.eof_received() is False


async def test_the_end_of_the_server_is_told_while_answers_can_be_sent(connection: WebSocketConnection):
    connection.protocol.shutdown()
    event = await connection.receive()
    assert (event["type"], event["code"], event["is_stopping"]) == ("websocket.disconnect", 1001, True)
    await connection.send({"type": "websocket.send", "text": "owed"})
    assert connection.transport.written == b"\x81\x04owed"


async def test_what_a_client_sends_to_a_server_that_ends_stays_with_it(connection: WebSocketConnection):
    """It may go on for as long as its answers take, and nobody asks for what it sends."""
    task = await connection.awaiting()
    connection.protocol.shutdown()
    assert (await task)["is_stopping"]
    assert connection.transport.is_read
    connection.client_sends(binary(b"more"))
    assert not connection.transport.is_read
    assert connection.budget.held_bytes == 0
    await connection.send({"type": "websocket.close", "code": 1001})
    connection.client_sends(*[binary(bytes(60_000))] * 5, CLOSE)
    assert connection.transport.is_closed
    assert connection.budget.held_bytes == 0


async def test_an_application_that_returns_closes_the_connection(connection: WebSocketConnection):
    connection.may_return.set()
    await asyncio.gather(*connection.state.tasks)
    assert connection.closed_with == Close(CloseCode.GOING_AWAY, "")


async def test_an_application_that_fails_is_logged(caplog: pytest.LogCaptureFixture):
    async def fails(scope: object, receive: object, send: object) -> None:
        raise RuntimeError("broken")

    connection = WebSocketConnection(fails)
    await connection.send({"type": "websocket.accept"})
    with caplog.at_level(logging.ERROR):
        await asyncio.gather(*connection.state.tasks)
    assert "broken" in caplog.text
    assert connection.closed_with == Close(CloseCode.INTERNAL_ERROR, "internal error")


async def test_an_application_that_fails_before_its_answer_just_ends(caplog: pytest.LogCaptureFixture):
    async def sends(scope: object, receive: object, send: object) -> None:
        raise Disconnected

    connection = WebSocketConnection(sends)
    await asyncio.gather(*connection.state.tasks)
    assert connection.transport.is_closed
    assert connection.transport.written == b""
    assert not caplog.text

"""What a client's library writes is what is read, in whatever pieces it arrives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Close, CloseCode, Frame, Opcode

from service.api.body import ByteBudget
from service.errors import Overloaded
from service.websocket.frame_head import ProtocolViolation
from service.websocket.incoming import unmask
from service.websocket.reader import SCRATCH_BYTES, Event, Fragment, Message, MessageReader, Ping, Pong

MAX_BYTES = 200_000


class Ticks:
    """A clock that is one nanosecond later each time."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns


def reader(budget: ByteBudget | None = None, max_bytes: int = MAX_BYTES) -> MessageReader:
    return MessageReader(max_bytes=max_bytes, budget=budget or ByteBudget(1 << 30), clock=Ticks())


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def read(made: MessageReader, sent: bytes, size: int = 1 << 30) -> list[Event]:
    """The events of bytes that arrive `size` at a time, as far as there is room for so many."""
    events = []
    start = 0
    while start < len(sent):
        room = made.room()
        nbytes = min(size, len(room), len(sent) - start)
        assert nbytes
        room[:nbytes] = sent[start : start + nbytes]
        made.received(nbytes)
        start += nbytes
        while (event := made.next_event()) is not None:
            events.append(event)
    return [event for event in events if not isinstance(event, Fragment)]


def test_no_more_than_one_frame_is_looked_at():
    made = reader()
    sent = frame(Opcode.BINARY, b"a", fin=False) + 3 * frame(Opcode.CONT, fin=False) + frame(Opcode.CONT, b"b")
    made.room()[: len(sent)] = sent
    made.received(len(sent))
    assert [made.next_event() for _ in range(4)] == [Fragment()] * 4
    assert said(made.next_event()) == b"ab"


def said(event: Event) -> object:
    if isinstance(event, Message):
        return event.data if isinstance(event.data, str) else bytes(event.data)
    return event


PIECES = st.lists(st.binary(max_size=400), min_size=1, max_size=4)
CONTROLS = st.lists(st.sampled_from([Opcode.PING, Opcode.PONG]), max_size=2)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), PIECES, CONTROLS), max_size=5), st.integers(1, 700))
def test_messages_are_whole_and_in_order_however_they_are_cut(messages, size):
    sent, expected = b"", []
    for is_text, pieces, controls in messages:
        texts = [piece.hex().encode() if is_text else piece for piece in pieces]
        for number, text in enumerate(texts):
            opcode = Opcode.CONT if number else Opcode.TEXT if is_text else Opcode.BINARY
            sent += frame(opcode, text, fin=number == len(texts) - 1)
            if number < len(texts) - 1:
                for control in controls:
                    sent += frame(control, b"now")
                    expected.append(Ping(b"now") if control is Opcode.PING else Pong())
        whole = b"".join(texts)
        expected.append(whole.decode() if is_text else whole)
    assert [said(event) for event in read(reader(), sent, size)] == expected


@pytest.mark.parametrize("nbytes", [0, 1, 125, 126, 65535, 65536, SCRATCH_BYTES - 8, SCRATCH_BYTES, MAX_BYTES])
@pytest.mark.parametrize("size", [1 << 30, 1000])
def test_payloads_of_every_length_field_are_read(nbytes, size):
    data = np.random.default_rng(nbytes).bytes(nbytes)
    budget = ByteBudget(1 << 30)
    (first, second) = read(reader(budget), frame(Opcode.BINARY, data) + frame(Opcode.BINARY, b"next"), size)
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert bytes(first.data) == data
    assert (first.held_bytes, second.held_bytes) == (nbytes, 4)
    assert budget.held_bytes == nbytes + 4
    assert 0 < first.received_ns < second.received_ns


def test_a_large_payload_is_read_where_it_stays():
    data = bytes(range(256)) * 500
    sent = frame(Opcode.BINARY, data)
    made = reader()
    made.room()[:100] = sent[:100]
    made.received(100)
    assert made.next_event() is None
    room = made.room()
    assert len(room) == len(sent) - 100
    room[:] = sent[100:]
    made.received(len(room))
    message = made.next_event()
    assert isinstance(message, Message)
    assert bytes(message.data) == data
    assert np.shares_memory(np.frombuffer(message.data, np.uint8), np.frombuffer(room, np.uint8))


def test_many_small_frames_of_a_browser_are_one_message():
    pieces = [bytes([number % 256]) * 1000 for number in range(150)]
    sent = b"".join(
        frame(Opcode.CONT if number else Opcode.BINARY, piece, fin=number == len(pieces) - 1)
        for number, piece in enumerate(pieces)
    )
    (message,) = read(reader(), sent)
    assert said(message) == b"".join(pieces)


@given(st.binary(max_size=70), st.binary(min_size=4, max_size=4), st.integers(0, 9))
def test_the_mask_is_taken_off_wherever_the_payload_begins(data, mask, offset):
    host = np.frombuffer(bytes(offset) + data, np.uint8).copy()
    unmask(host[offset:], mask)
    assert host[offset:].tolist() == [byte ^ mask[place % 4] for place, byte in enumerate(data)]
    assert not host[:offset].any()


def test_a_close_is_read():
    (close,) = read(reader(), frame(Opcode.CLOSE, Close(1001, "bye").serialize()))
    assert close == Close(CloseCode.GOING_AWAY, "bye")
    (close,) = read(reader(), frame(Opcode.CLOSE))
    assert isinstance(close, Close)
    assert close.code == CloseCode.NO_STATUS_RCVD


@pytest.mark.parametrize(
    ("sent", "code", "says"),
    [
        (Frame(Opcode.BINARY, b"x").serialize(mask=False), 1002, "must be masked"),
        (bytes([0xC2, 0x80, 0, 0, 0, 0]), 1002, "reserved bit"),
        (bytes([0x83, 0x80, 0, 0, 0, 0]), 1002, "opcode 3 is reserved"),
        (bytes([0x09, 0x80, 0, 0, 0, 0]), 1002, "control frame"),
        (bytes([0x89, 0xFE, 0, 126, 0, 0, 0, 0]), 1002, "control frame"),
        (frame(Opcode.CONT, b"x"), 1002, "continues nothing"),
        (frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.TEXT, b"x"), 1002, "within another"),
        (frame(Opcode.TEXT, b"\xff"), 1007, "not UTF-8"),
        (frame(Opcode.CLOSE, b"\x00"), 1002, "close frame"),
        (frame(Opcode.CLOSE, b"\x03\xe8\xff"), 1002, "close frame"),
        (frame(Opcode.CLOSE, b"\x00\x01"), 1002, "close frame"),
        (frame(Opcode.BINARY, bytes(MAX_BYTES + 1)), 1009, f"{MAX_BYTES} bytes at most"),
        (bytes([0x82, 0xFF, *[0xFF] * 8, 0, 0, 0, 0]), 1009, f"{MAX_BYTES} bytes at most"),
        (frame(Opcode.BINARY, bytes(MAX_BYTES), fin=False) + frame(Opcode.CONT, b"x"), 1009, "bytes at most"),
    ],
)
def test_what_is_not_allowed_says_why(sent, code, says):
    budget = ByteBudget(1 << 30)
    made = reader(budget)
    with pytest.raises(ProtocolViolation, match=says) as violation:
        read(made, sent)
    assert violation.value.code == code
    assert len(violation.value.reason.encode()) <= 123
    made.close()
    assert budget.held_bytes == 0


def test_a_message_that_the_budget_has_no_room_for_is_dropped_and_the_next_is_read():
    budget = ByteBudget(100_000)
    budget.take(40_000)
    refused, taken = read(reader(budget), frame(Opcode.BINARY, bytes(60_001)) + frame(Opcode.BINARY, b"x"), 999)
    assert isinstance(refused, Message)
    assert isinstance(taken, Message)
    assert isinstance(refused.refusal, Overloaded)
    assert (bytes(refused.data), refused.held_bytes) == (b"", 0)
    assert (bytes(taken.data), taken.refusal) == (b"x", None)
    assert budget.held_bytes == 40_001


def test_a_message_is_dropped_when_others_take_its_room_while_it_arrives():
    budget = ByteBudget(100_000)
    made = reader(budget)
    sent = frame(Opcode.BINARY, bytes(60_000), fin=False) + frame(Opcode.CONT, bytes(30_000))
    assert read(made, sent[:50_000], 1000) == []
    assert made.is_in_message
    held = budget.held_bytes
    assert 40_000 < held <= 50_000
    budget.hold(100_000)
    (message,) = read(made, sent[50_000:], 1000)
    assert isinstance(message, Message)
    assert message.refusal is not None
    assert message.held_bytes == 0
    assert budget.held_bytes == 100_000
    assert not made.is_in_message


def test_a_message_that_is_announced_holds_what_has_come_of_it():
    budget = ByteBudget(1 << 30)
    made = reader(budget)
    read(made, frame(Opcode.BINARY, bytes(MAX_BYTES))[:1000])
    assert 900 < budget.held_bytes < 1000
    made.close()
    assert budget.held_bytes == 0


def test_a_head_that_begins_at_the_end_of_the_scratch_memory_has_room():
    first = frame(Opcode.BINARY, bytes(SCRATCH_BYTES - 128))
    sent = first + frame(Opcode.PING, b"p" * 125) + frame(Opcode.TEXT, b"next")
    message, *rest = read(reader(), sent, len(first) + 1)
    assert isinstance(message, Message)
    assert len(message.data) == SCRATCH_BYTES - 128
    assert [said(event) for event in rest] == [Ping(b"p" * 125), "next"]

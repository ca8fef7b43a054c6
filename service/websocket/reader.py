"""Bytes of a client in, messages and control frames out; no socket and no clock of its own.

Large payloads are read where they stay: `room` is the very memory of the message. What a library's parser would do
instead (into a buffer, out of it, and once more for the mask) costs more than everything else that a video frame needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode, Opcode

from service.errors import Overloaded
from service.websocket.frame_head import MAX_CONTROL_BYTES, MAX_HEAD_BYTES, FrameHead, ProtocolViolation, parse_head
from service.websocket.incoming import Budget, IncomingMessage

SCRATCH_BYTES = 32 << 10
"""What is read at once while no payload is awaited. It is copied, so not more."""

_SMALL = MAX_HEAD_BYTES + MAX_CONTROL_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A complete message.

    Attributes:
        data: its text, or its bytes in memory of their own.
        held_bytes: what it holds of the budget; whoever takes it gives them back.
        received_ns: when its first byte was read.
        refusal: why it was dropped; `data` is empty then.
    """

    data: str | memoryview
    held_bytes: int
    received_ns: int
    refusal: Overloaded | None


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a pong with the same payload."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    """An answer to a ping."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A frame that does not end its message. Told so that whoever reads can stop between any two frames."""


Event = Message | Fragment | Ping | Pong | Close


class MessageReader:
    """The incoming side of one connection. After a `ProtocolViolation` or a `Close` it must not be used any more.

    Args:
        max_bytes: largest message.
        budget: what all connections together may hold.
        clock: monotonic nanoseconds.
    """

    def __init__(self, *, max_bytes: int, budget: Budget, clock: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._clock = clock
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._start = self._end = 0
        self._head: FrameHead | None = None
        self._left_bytes = 0
        self._message: IncomingMessage | None = None

    @property
    def is_in_message(self) -> bool:
        """Whether a message has begun that is not complete."""
        return self._message is not None

    def room(self) -> memoryview:
        """Where the next bytes of the client go; never empty while `next_event` has returned None."""
        if self._is_payload_awaited and self._message is not None:
            room = self._message.room()
            if len(room):
                return room
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._scratch) - self._end < _SMALL:
            rest = bytes(self._scratch[self._start : self._end])
            self._start, self._end = 0, len(rest)
            self._scratch[: len(rest)] = rest
        return self._scratch[self._end :]

    def received(self, nbytes: int) -> None:
        """Counts bytes that were written to `room`."""
        if self._is_payload_awaited and self._message is not None and len(self._message.room()):
            self._message.advance(nbytes)
            self._left_bytes -= nbytes
        else:
            self._end += nbytes

    def next_event(self) -> Event | None:
        """What the next frame is, of which at most one is looked at; None where it is still to come.

        Raises:
            ProtocolViolation: what came is not allowed.
        """
        if self._head is None and not self._begin_frame():
            return None
        assert self._head is not None, "a frame has begun"
        if self._head.is_control:
            return self._control(self._head)
        if self._message is not None and not self._is_complete(self._message):
            return None
        return self._end_frame(self._head)

    def close(self) -> None:
        """Gives up a message in progress."""
        if self._message is not None:
            self._message.close()
            self._message = None

    @property
    def _is_payload_awaited(self) -> bool:
        return self._head is not None and self._start == self._end and self._left_bytes > 0

    def _begin_frame(self) -> bool:
        """Parses a head; whether there was one, and of a control frame all the rest too."""
        head = parse_head(self._scratch[self._start : self._end])
        if head is None or (head.is_control and self._end - self._start < head.head_bytes + head.nbytes):
            return False
        self._start += head.head_bytes
        self._head, self._left_bytes = head, head.nbytes
        if not head.is_control:
            self._message_of(head).begin_frame(head.nbytes)
        return True

    def _message_of(self, head: FrameHead) -> IncomingMessage:
        if (head.opcode is Opcode.CONT) != (self._message is not None):
            problem = "a message begins within another" if self._message else "a continuation continues nothing"
            raise ProtocolViolation(CloseCode.PROTOCOL_ERROR, problem)
        if self._message is None:
            self._message = IncomingMessage(head.opcode, self._clock(), max_bytes=self._max_bytes, budget=self._budget)
        return self._message

    def _is_complete(self, message: IncomingMessage) -> bool:
        """Takes what stands in the scratch memory; whether the frame's payload is complete."""
        nbytes = min(self._left_bytes, self._end - self._start)
        if nbytes:
            room = message.room()
            if len(room):
                room[:nbytes] = self._scratch[self._start : self._start + nbytes]
            message.advance(nbytes)
            self._start += nbytes
            self._left_bytes -= nbytes
        return not self._left_bytes

    def _end_frame(self, head: FrameHead) -> Message | Fragment:
        assert self._message is not None, "data frames belong to a message"
        self._head = None
        message = self._message
        message.end_frame(head)
        if not head.is_final:
            return Fragment()
        payload = message.payload()
        try:
            data = str(payload, "utf-8") if message.opcode is Opcode.TEXT else payload
        except UnicodeDecodeError:
            raise ProtocolViolation(CloseCode.INVALID_DATA, "a text message is not UTF-8") from None
        self._message = None
        return Message(data, message.held_bytes, message.received_ns, message.refusal)

    def _control(self, head: FrameHead) -> Event:
        masked = self._scratch[self._start : self._start + head.nbytes]
        payload = bytes(byte ^ head.mask[place % 4] for place, byte in enumerate(masked))
        self._start += head.nbytes
        self._head = None
        match head.opcode:
            case Opcode.PING:
                return Ping(payload)
            case Opcode.PONG:
                return Pong()
            case _:
                return _parsed_close(payload)


def _parsed_close(payload: bytes) -> Close:
    try:
        parsed: Close = Close.parse(payload)
    except (ProtocolError, UnicodeDecodeError):
        raise ProtocolViolation(CloseCode.PROTOCOL_ERROR, "the close frame cannot be read") from None
    return parsed

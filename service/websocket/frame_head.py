"""The head of a WebSocket frame (RFC 6455, section 5.2), and what a client may not send."""

from __future__ import annotations

from dataclasses import dataclass

from websockets.frames import CloseCode, Opcode

MAX_HEAD_BYTES = 14
MAX_CONTROL_BYTES = 125
"""Largest payload of a ping, a pong or a close (section 5.5)."""

_MASKED = 0x80
_FINAL = 0x80
_RESERVED = 0x70
_OPCODE = 0x0F
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_CONTROL = frozenset({Opcode.CLOSE, Opcode.PING, Opcode.PONG})


class ProtocolViolation(Exception):
    """A client broke the protocol, or a bound; the connection is closed.

    Attributes:
        code: for the close frame.
        reason: likewise; at most 123 bytes.
    """

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What stands before a payload.

    Attributes:
        opcode: what the payload is.
        is_final: whether it ends its message.
        nbytes: of the payload.
        mask: four bytes that the payload is masked with.
        head_bytes: of this head.
    """

    opcode: Opcode
    is_final: bool
    nbytes: int
    mask: bytes
    head_bytes: int

    @property
    def is_control(self) -> bool:
        """Whether it is a close, a ping or a pong."""
        return self.opcode in _CONTROL


def parse_head(host: memoryview) -> FrameHead | None:
    """The head at the start of what a client sent, or None where some of it is still to come.

    Raises:
        ProtocolViolation: it is not a head that a client without extensions may send.
    """
    if len(host) < 2:
        return None
    opcode = _checked_opcode(host[0], host[1])
    length_bytes = {_TWO_BYTES: 2, _EIGHT_BYTES: 8}.get(host[1] & ~_MASKED, 0)
    head_bytes = 2 + length_bytes + 4
    if len(host) < head_bytes:
        return None
    nbytes = int.from_bytes(host[2 : 2 + length_bytes], "big") if length_bytes else host[1] & ~_MASKED
    is_final = bool(host[0] & _FINAL)
    if opcode in _CONTROL and (nbytes > MAX_CONTROL_BYTES or not is_final):
        raise ProtocolViolation(
            CloseCode.PROTOCOL_ERROR, f"a control frame has {MAX_CONTROL_BYTES} bytes at most, in one piece"
        )
    return FrameHead(opcode, is_final, nbytes, bytes(host[head_bytes - 4 : head_bytes]), head_bytes)


def _checked_opcode(first: int, second: int) -> Opcode:
    if first & _RESERVED:
        raise ProtocolViolation(CloseCode.PROTOCOL_ERROR, "a reserved bit is set, but no extension was agreed upon")
    if not second & _MASKED:
        raise ProtocolViolation(CloseCode.PROTOCOL_ERROR, "a client's frames must be masked")
    try:
        return Opcode(first & _OPCODE)
    except ValueError:
        raise ProtocolViolation(CloseCode.PROTOCOL_ERROR, f"opcode {first & _OPCODE} is reserved") from None

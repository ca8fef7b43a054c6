"""Parts of a forwarded ASGI call, as payloads of `FORWARD` frames.

Each begins with what it is (uint8) and the number of its call (uint64), little-endian. Numbers are given by the front
end. Heads are pickled; bodies travel as they are.
"""

from __future__ import annotations

import pickle
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from service.transport.wire import Kind, Malformed, pack_frame

_PART = Struct("<BQ")
_CREDIT = Struct("<Q")

WINDOW_BYTES = 1 << 20
"""How much of an answer may be on its way to a client that has not taken it."""


class Part(IntEnum):
    """What a payload is."""

    CALL = 1
    """Front end → engine: the scope of a new call."""
    BODY = 2
    """Either: bytes of a body, and more will follow."""
    LAST_BODY = 3
    """Either: the last bytes of a body."""
    GONE = 4
    """Front end → engine: the client has gone, or was told something else."""
    TAKEN = 5
    """Front end → engine: so many bytes of the answer have gone to the client."""
    HEAD = 6
    """Engine → front end: status and headers of the answer."""
    BROKEN = 7
    """Engine → front end: no answer, or no more of it, will come."""


_PARTS: dict[int, Part] = {part.value: part for part in Part}


class Head(NamedTuple):
    """Status and headers of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]


def pack_part(part: Part, call: int, content: bytes | memoryview = b"") -> bytes:
    """A frame that carries a part of a call."""
    return pack_frame(Kind.FORWARD, _PART.pack(part, call), content)


def pack_call(call: int, scope: dict[str, Any]) -> bytes:
    """The frame that begins a call; the scope holds plain values alone."""
    return pack_part(Part.CALL, call, pickle.dumps(scope))


def pack_head(call: int, head: Head) -> bytes:
    """The frame that begins an answer."""
    return pack_part(Part.HEAD, call, pickle.dumps(tuple(head)))


def pack_taken(call: int, nbytes: int) -> bytes:
    """The frame that lets more of an answer come."""
    return pack_part(Part.TAKEN, call, _CREDIT.pack(nbytes))


def unpack_part(payload: memoryview) -> tuple[Part, int, memoryview]:
    """What a payload is, its call, and its content.

    Raises:
        Malformed: it is none of ours.
    """
    if len(payload) < _PART.size:
        raise Malformed(f"a part of a call has {len(payload)} bytes, expected {_PART.size} or more")
    number, call = _PART.unpack_from(payload)
    part = _PARTS.get(number)
    if part is None:
        raise Malformed(f"a part of a call is of kind {number}, expected one of {sorted(_PARTS)}")
    return part, call, payload[_PART.size :]


def unpack_scope(content: memoryview) -> dict[str, Any]:
    """The scope of a call.

    Raises:
        Malformed: it is none.
    """
    scope = _unpickled(content)
    if not isinstance(scope, dict):
        raise Malformed(f"a scope is a {type(scope).__name__}, expected a dict")
    return scope


def unpack_head(content: memoryview) -> Head:
    """The head of an answer.

    Raises:
        Malformed: it is none.
    """
    head = _unpickled(content)
    if not (isinstance(head, tuple) and len(head) == len(Head._fields)):
        raise Malformed(f"an answer's head is a {type(head).__name__}, expected status and headers")
    return Head(*head)


def unpack_taken(content: memoryview) -> int:
    """How much of an answer was taken, in bytes.

    Raises:
        Malformed: it is no number.
    """
    if len(content) != _CREDIT.size:
        raise Malformed(f"a credit has {len(content)} bytes, expected {_CREDIT.size}")
    nbytes: int = _CREDIT.unpack(content)[0]
    return nbytes


def _unpickled(content: memoryview) -> object:
    try:
        return pickle.loads(content)
    except Exception as error:
        # Unpickling raises whatever it meets.
        raise Malformed(f"{len(content)} bytes of a call cannot be read: {error!r}") from error

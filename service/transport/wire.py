"""How messages between a front end and the engine are told apart on a stream: each is a frame of a kind.

A frame is its payload's length as uint32, its kind as uint8, both little-endian, and the payload. The hot kinds have
payloads of fixed layout (`descriptors.py`); those of rare ones are pickled (`objects.py`), for both sides are our own
processes and nobody else can open the socket.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

MAX_PAYLOAD_BYTES = 1 << 30
"""Largest payload: what is longer is not ours, or has lost its way."""

_HEAD = Struct("<IB")
HEAD_BYTES = _HEAD.size


class Kind(IntEnum):
    """What a frame is. The direction is that of whoever sends it."""

    HELLO = 1
    """Front end → engine, first of all: which region it owns."""
    WELCOME = 2
    """Engine → front end, once nothing else uses the region any more: requests are taken from now on."""
    CATALOGUE = 3
    """Engine → front end: everything that serves, and what does not and why."""
    KNOWN = 4
    """Front end → engine: it serves by the catalogue of this number."""
    SUBMIT = 5
    """Front end → engine: a request."""
    CANCEL = 6
    """Front end → engine: its client has gone."""
    DONE = 7
    """Engine → front end: a request's outputs."""
    FAILED = 8
    """Engine → front end: why a request has none."""
    RECORDS = 9
    """Front end → engine: what it counted."""
    FORWARD = 10
    """Either: part of a call of the engine's ASGI application."""
    COUNT = 11
    """Engine → front end: send what you have counted, then `COUNTED`."""
    COUNTED = 12
    """Front end → engine: all that was counted before `COUNT` came has been sent."""


_KINDS: dict[int, Kind] = {kind.value: kind for kind in Kind}


class Malformed(Exception):
    """What came is no message of ours; the stream cannot be trusted any more."""


class Frame(NamedTuple):
    """A message as it came.

    Attributes:
        kind: what it is.
        payload: its content, read-only and unaligned; it keeps alive all that was read together with it.
    """

    kind: Kind
    payload: memoryview


def pack_frame(kind: Kind, *parts: bytes | memoryview) -> bytes:
    """A message, ready to be sent.

    Raises:
        ValueError: it is larger than `MAX_PAYLOAD_BYTES`.
    """
    nbytes = sum(map(len, parts))
    if nbytes > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a message of {nbytes} bytes, at most {MAX_PAYLOAD_BYTES} may cross at once")
    return b"".join((_HEAD.pack(nbytes, kind), *parts))


class FrameReader:
    """Finds the frames in a stream, however it was cut; what is not complete waits, and is never copied twice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self._needed_bytes = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with `data`, in their order.

        Raises:
            Malformed: a frame is of no known kind, or longer than any of ours.
        """
        if self._parts:
            self._parts.append(data)
            self._held_bytes += len(data)
            if self._held_bytes < self._needed_bytes:
                return []
            data = b"".join(self._parts)
            self._parts = []
        frames: list[Frame] = []
        whole, start, end = memoryview(data), 0, len(data)
        needed_bytes = HEAD_BYTES
        while end - start >= HEAD_BYTES:
            nbytes, number = _HEAD.unpack_from(data, start)
            kind = _KINDS.get(number)
            if kind is None or nbytes > MAX_PAYLOAD_BYTES:
                raise Malformed(f"a frame of kind {number} and {nbytes} bytes; the kinds are {sorted(_KINDS)}")
            needed_bytes = HEAD_BYTES + nbytes
            if needed_bytes > end - start:
                break
            frames.append(Frame(kind, whole[start + HEAD_BYTES : start + needed_bytes]))
            start += needed_bytes
            needed_bytes = HEAD_BYTES
        if start < end:
            self._parts, self._held_bytes, self._needed_bytes = [data[start:]], end - start, needed_bytes
        return frames

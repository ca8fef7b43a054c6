"""A message while it arrives: one piece of memory that the socket is read into, counted as it fills."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from websockets.frames import CloseCode, Opcode

from service.errors import Overloaded
from service.websocket.frame_head import FrameHead, ProtocolViolation

_WORD_BYTES = 8


class Budget(Protocol):
    """Bytes that all connections together may hold."""

    def check_room(self, nbytes: int) -> None:
        """Raises Overloaded where they would not fit."""

    def take(self, nbytes: int) -> None:
        """Reserves them, or raises Overloaded."""

    def give_back(self, nbytes: int) -> None:
        """Returns reserved bytes."""


class IncomingMessage:
    """A text or binary message of one frame or several.

    The system gives memory as it is written to, so a client that only announces a large message holds none; of the
    budget, it holds what has arrived. Where the budget has no room for more, what is left of the message is dropped.

    Args:
        opcode: TEXT or BINARY.
        received_ns: when it began.
        max_bytes: largest message.
        budget: where its bytes are reserved.
    """

    __slots__ = (
        "_budget",
        "_filled",
        "_frame_start",
        "_host",
        "_max_bytes",
        "_size",
        "opcode",
        "received_ns",
        "refusal",
    )

    def __init__(self, opcode: Opcode, received_ns: int, *, max_bytes: int, budget: Budget) -> None:
        self.opcode = opcode
        self.received_ns = received_ns
        self.refusal: Overloaded | None = None
        self._budget = budget
        self._max_bytes = max_bytes
        self._host: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._size = 0
        self._filled = 0
        self._frame_start = 0

    @property
    def held_bytes(self) -> int:
        """What it holds of the budget."""
        return self._filled

    def begin_frame(self, nbytes: int) -> None:
        """Makes room for the payload of its next frame.

        Raises:
            ProtocolViolation: the message becomes too large.
        """
        self._size += nbytes
        if self._size > self._max_bytes:
            raise ProtocolViolation(
                CloseCode.MESSAGE_TOO_BIG, f"a message has {self._max_bytes} bytes at most (INFERLANE_MAX_BODY_BYTES)"
            )
        if self.refusal is not None:
            return
        self._frame_start = self._filled
        try:
            self._budget.check_room(nbytes)
        except Overloaded as error:
            self._refuse(error)
            return
        if self._size > len(self._host):
            # Browsers cut a message into many frames: doubled, its memory is copied once on average.
            capacity = self._size if not self._filled else min(self._max_bytes, max(self._size, 2 * len(self._host)))
            grown = np.empty(capacity, np.uint8)
            grown[: self._filled] = self._host[: self._filled]
            self._host = grown

    def room(self) -> memoryview:
        """Where the rest of the frame goes; empty where it is complete, or dropped."""
        return self._host.data[self._filled : 0 if self.refusal else self._size]

    def advance(self, nbytes: int) -> None:
        """Counts bytes that were written to `room`, or dropped."""
        if self.refusal is not None:
            return
        try:
            self._budget.take(nbytes)
        except Overloaded as error:
            self._refuse(error)
        else:
            self._filled += nbytes

    def end_frame(self, head: FrameHead) -> None:
        """Takes the mask off a payload that is complete."""
        if self.refusal is None:
            unmask(self._host[self._frame_start : self._filled], head.mask)

    def payload(self) -> memoryview:
        """The complete message; empty where it was refused."""
        return self._host.data[: self._filled]

    def close(self) -> None:
        """Gives up the message, and returns what it holds of the budget."""
        self._budget.give_back(self._filled)
        self._filled = 0

    def _refuse(self, error: Overloaded) -> None:
        self.close()
        self._host = np.empty(0, np.uint8)
        self.refusal = error


def unmask(host: npt.NDArray[np.uint8], mask: bytes) -> None:
    """Exclusive-or with `mask`, four bytes over and over, in place (RFC 6455, section 5.3)."""
    whole = len(host) - len(host) % _WORD_BYTES
    words = host[:whole].view(np.uint64)
    tile = np.frombuffer(mask * 2, np.uint8)
    np.bitwise_xor(words, tile.view(np.uint64), out=words)
    np.bitwise_xor(host[whole:], tile[: len(host) - whole], out=host[whole:])

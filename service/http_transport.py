"""A connection as the tasks of its requests see it: they neither let more in while requests wait, nor cut it off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.protocols.http.flow_control import FlowControl

from service.websocket.protocol import Bounds

MAX_JOINED_BYTES = 64 << 10
"""The largest part of a body that is copied behind its head; to copy a larger one takes longer than a system call."""

_INFORMATIONAL = b"HTTP/1.1 1"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may take of the server's connections.

    Attributes:
        body_timeout_s: seconds for a head, from its first byte, and for the rest of a body whose request is answered.
        send_timeout_s: seconds within which a client must take an answer that the system's buffers do not.
        max_connections: connections open at once.
        overload_status: status of the answer to a connection beyond them.
        websocket: what it may take as a WebSocket; None where none is opened.
    """

    body_timeout_s: float
    send_timeout_s: float
    max_connections: int
    overload_status: int
    websocket: Bounds | None = None


class HeldFlow(FlowControl):
    """uvicorn resumes reading whenever an application waits for its request; not while another request waits.

    Attributes:
        is_held: whether one does.
    """

    is_held = False

    def resume_reading(self) -> None:
        """Reads on, unless held."""
        if not self.is_held:
            super().resume_reading()


class AnswerTransport:
    """What tasks write their answers to, one after another: head and body leave in one write, which is one system call.

    A head waits for the first part of its body no longer than this turn of the event loop.

    Args:
        transport: the connection's.
        loop: the connection's.
        close: what closing it does; the protocol knows whether its client still sends.
    """

    __slots__ = ("_close", "_has_begun", "_head", "_loop", "_transport", "is_closing")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._loop = loop
        self._close = close
        self._head = b""
        self._has_begun = False

    def write(self, part: bytes) -> None:
        """Writes a part of an answer; its head is the first, and may wait. What goes before a head does not."""
        if self._head:
            head, self._head = self._head, b""
            if len(part) > MAX_JOINED_BYTES:
                self._transport.write(head)
                self._transport.write(part)
            else:
                self._transport.write(head + part)
        elif self._has_begun or part.startswith(_INFORMATIONAL):
            self._transport.write(part)
        else:
            self._has_begun = True
            self._head = part
            self._loop.call_soon(self.flush)

    def end_answer(self) -> None:
        """An answer is complete; another may begin."""
        self.flush()
        self._has_begun = False

    def flush(self) -> None:
        """Lets no head wait any longer."""
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def close(self) -> None:
        """Closes the connection behind what was written."""
        self.flush()
        self._close()

"""A connection as the tasks of its requests see it: they neither let more in while requests wait, nor cut it off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.protocols.http.flow_control import FlowControl

from service.websocket.protocol import Bounds


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
    """What a task writes its answer to.

    Args:
        transport: the connection's.
        close: what closing it does; the protocol knows whether its client still sends.
    """

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close

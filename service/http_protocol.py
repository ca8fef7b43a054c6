"""Connections within bounds: small heads that arrive in time, and no more at once than the settings say.

uvicorn bounds how long a connection may idle after an answer. It does not bound how long a head may take or become,
how long a fresh connection may say nothing, or how many connections there are: one client could hold all of them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.api.errors import error_body, error_headers, status_of
from service.errors import BodyTimeout, InvalidInput, Overloaded, PayloadTooLarge, ServiceError

MAX_HEAD_BYTES = 64 << 10
"""Largest head that may arrive in parts; what the server reads at once is bounded by the event loop."""

LINGER_S = 1.0
"""How long a refused connection stays open for its client to read why: closed at once, it would see a reset."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may take of the server's connections.

    Attributes:
        head_timeout_s: seconds from the first byte of a request until its head is complete.
        max_connections: connections open at once.
        overload_status: status of the answer to a connection beyond them.
    """

    head_timeout_s: float
    max_connections: int
    overload_status: int


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Made and used by uvicorn, on the event loop.

    Args:
        limits: of every connection.
        config: as uvicorn passes it, and so the rest.
        server_state: the server's, with its connections.
        app_state: the application's.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_refused = False
        self._is_answered = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, or keeps it apart to be refused. A silent one is closed as an idle one is."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._is_refused = True
            self.connections.discard(self)
            self.timeout_keep_alive_task = self.loop.call_later(LINGER_S, self.timeout_keep_alive_handler)
            return
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Parses what arrived. Bytes that belong to no body and complete no head start the head's time."""
        if self._is_refused:
            if not self._is_answered:
                self._refuse()
            return
        cycle = self.cycle
        is_head = cycle is None or cycle.response_complete or not cycle.more_body
        super().data_received(data)
        if self.cycle is not cycle:
            self._end_head()
        elif is_head and not self.transport.is_closing():
            self._go_on_with_head(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what waited for more of it."""
        self._end_head()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP, as every error, in JSON, and closes the connection."""
        self._answer(InvalidInput(f"{msg.rstrip('.')}; send HTTP/1.1"))
        self.transport.close()

    def _refuse(self) -> None:
        """Answers on the first bytes; what follows them is read and dropped, until the client leaves or time is up."""
        self._is_answered = True
        self._answer(
            Overloaded(
                f"the server has its {self._limits.max_connections} connections; retry later, use the connections that "
                "you have for more requests, or raise INFERLANE_MAX_CONNECTIONS",
                retry_after_s=1.0,
            )
        )
        self.transport.write_eof()

    def _go_on_with_head(self, nbytes: int) -> None:
        """Counts `nbytes` more of a head that is not complete; the first of them start its time."""
        self._head_bytes += nbytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._give_up(
                PayloadTooLarge(f"the request's head exceeds {MAX_HEAD_BYTES} bytes; send fewer or shorter headers")
            )
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_timeout_s, self._on_slow_head)

    def _on_slow_head(self) -> None:
        self._give_up(
            BodyTimeout(
                f"the request's head was not complete {self._limits.head_timeout_s:g} seconds after its first byte; "
                "send it without pauses"
            )
        )

    def _give_up(self, error: ServiceError) -> None:
        """Closes the connection, with an answer where none is under way."""
        self._end_head()
        if self.cycle is None or self.cycle.response_complete:
            self._answer(error)
        self.transport.close()

    def _answer(self, error: ServiceError) -> None:
        """Writes an error without the application, which never saw the request."""
        status = status_of(error, self._limits.overload_status)
        body = error_body(error)
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **error_headers(error),
        }
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{key}: {text}" for key, text in headers.items())]
        self.transport.write("\r\n".join((*lines, "", "")).encode() + body)

    def _end_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

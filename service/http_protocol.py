"""Connections within bounds: of time, of size, of requests that wait, and no more at once than the settings say.

uvicorn bounds how long a connection may idle after an answer. It does not bound how long a head may take or become,
how long a fresh connection may say nothing, how many requests may be sent before the first is answered, how long an
answer may remain unread, or how many connections there are: one client could hold all of them, or all memory.

Whoever is answered can read the answer: a connection that ends while its client still sends is closed for writing only,
and what arrives is dropped for a while. Closed at once, the client would see a reset instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.errors import ServiceError
from service.http_messages import (
    MAX_HEAD_BYTES,
    announced_bytes,
    body_head,
    closing_answer,
    head_too_large,
    head_too_slow,
    new_parser,
    not_http,
    too_many_connections,
)
from service.http_transport import AnswerTransport, ConnectionLimits, HeldFlow
from service.websocket.upgrade import Handshake, open_websocket, read_handshake, too_early

LINGER_S = 1.0
"""How long a refused connection stays open for its client to read why."""

PROBE_AFTER_S = 0.05
"""When a client that has ended its side is first asked whether it still listens; then twice as long, and so on."""

SLICE_BYTES = 512
"""What is parsed at once outside of bodies: the requests in it are the most that can wait behind another."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Made and used by uvicorn, on the event loop.

    Args:
        limits: of every connection.
        config: as uvicorn passes it, and so the rest.
        server_state: the server's, with its connections.
        app_state: the application's.
    """

    flow: HeldFlow

    def __init__(
        self,
        limits: ConnectionLimits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = new_parser(self)
        self._limits = limits
        self._answers: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_time: Callable[[], None] | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._is_in_body = False
        self._body_left_bytes = 0
        self._stray_bytes = 0
        self._unparsed = b""
        self._unanswered = 0
        self._is_refused = False
        self._is_dropping = False
        self._is_ending = False
        self._is_half_closed = False
        self._handshake: Handshake | None = None
        self._last_word: ServiceError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, or keeps it apart to be refused. A silent one is closed as an idle one is."""
        super().connection_made(transport)
        self.flow = HeldFlow(transport)
        self._answers = AnswerTransport(transport, self.loop, self._end_after_answer)
        if len(self.connections) > self._limits.max_connections:
            self._is_refused = self._is_dropping = True
            self.connections.discard(self)
            self._start_timer(LINGER_S, self._close)
        else:
            self._start_keep_alive()

    def data_received(self, data: bytes) -> None:
        """Parses what arrived, as far as no request waits; a connection that ends drops it."""
        if not self._is_dropping:
            self._unset_keepalive_if_required()
            self._parse(data)
        elif self._is_refused:
            self._refuse()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Stays open for a client that has sent its requests and waits for the answers.

        One that has left looks the same until something is written to it. So after a while it is asked, by
        `100 Continue`, which a client that waits passes over, and one that has left answers with a reset.
        """
        if self._is_dropping or self._is_in_body or not self._unanswered:
            self._close()
            return False
        if not self._is_half_closed:
            self._is_half_closed = True
            self._start_probes(PROBE_AFTER_S)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what waited for more of it."""
        self._expect(None)
        self._unset_keepalive_if_required()
        self._stop_send_timer()
        self._unparsed = b""
        self.pipeline.clear()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Gives the client its time to take what was written; then its memory is taken back."""
        super().pause_writing()
        self._start_send_timer()

    def resume_writing(self) -> None:
        """The client has taken enough of it. One that is being closed must take all in its time."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_send_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been silent for long."""
        self._close()

    def on_message_begin(self) -> None:
        """A head begins; unless a parser is given one to go on with a body."""
        if not self._is_in_body:
            self._is_in_head = True
            super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Starts a request, or lets it wait for the one before.

        Raises:
            ServiceError: the head is refused; the parser passes it on.
        """
        if self._is_in_body:
            return
        is_http_1_0 = self.parser.get_http_version() == "1.0"
        self._body_left_bytes = announced_bytes(self.headers, is_http_1_0=is_http_1_0)
        if self._limits.websocket and not self._unanswered:
            self._handshake = read_handshake(self.parser, self.url, self.headers)
            if self._handshake:
                return
        super().on_headers_complete()
        self.cycle.transport = self._answers
        self.headers = []  # what follows a chunked body is none of the request's
        self._is_in_head, self._is_in_body = False, True
        self._stray_bytes = 0
        self._unanswered += 1
        self._expect(None)
        if self.pipeline:
            self.flow.is_held = True

    def on_body(self, body: bytes) -> None:
        """Hands a part of the body on; uvicorn drops that of a request which is answered."""
        self._stray_bytes = 0
        if self._body_left_bytes:
            self._body_left_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete; not that of an upgrade, of which the parser leaves the body unread."""
        if self.parser.should_upgrade():
            return
        self._is_in_body = False
        self._body_left_bytes = self._stray_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on with the next request, or ends the connection where it was to end."""
        self._unanswered -= 1
        self._answers.end_answer()
        if self._is_dropping and not self._is_ending:
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            return
        if len(self.pipeline) <= 1:
            self.flow.is_held = False
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._is_ending:
            self._end_when_answered()
        elif self._unparsed and not self.pipeline:
            unparsed, self._unparsed = self._unparsed, b""
            self._unset_keepalive_if_required()
            self._parse(unparsed)
        else:
            self._await_client()

    def _parse(self, data: bytes) -> None:
        """Parses until a request waits for another, and keeps the rest for when that is answered."""
        view = memoryview(data)
        start = 0
        try:
            while start < len(view):
                if self.pipeline:
                    self._unparsed = bytes(view[start:])
                    break
                end = start + max(SLICE_BYTES, self._body_left_bytes)
                start += self._parse_slice(view[start:end])
                if self._handshake:
                    self._become_websocket(self._handshake, bytes(view[start:]))
                    return
                if self._stray_bytes > MAX_HEAD_BYTES:
                    raise head_too_large()
        except httptools.HttpParserError as error:
            self._end(not_http(error))
        except ServiceError as error:
            self._end(error)
        else:
            self._await_client()

    def _parse_slice(self, part: memoryview) -> int:
        """Parses a slice; returns how many bytes that were. No upgrade is taken: its request is served as it is."""
        self._stray_bytes += len(part)
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._handshake:
                self.parser = new_parser(self)
                self.parser.feed_data(body_head(self.scope["headers"]))
            return int(upgrade.args[0])
        return len(part)

    def _become_websocket(self, handshake: Handshake, rest: bytes) -> None:
        """Hands the connection over, of which this object then hears nothing more."""
        assert self._limits.websocket is not None, "or no handshake is read"
        if rest:
            self._end(too_early())
            return
        self._expect(None)
        self._unset_keepalive_if_required()
        self._stop_send_timer()
        self.connections.discard(self)
        open_websocket(self, handshake, self._limits.websocket, time.monotonic_ns)

    def _await_client(self) -> None:
        """Sets what happens if the client does not go on with what it began. The application watches bodies itself."""
        if self._is_half_closed:
            self._end_when_answered()
        elif self.pipeline:
            self._expect(None)
        elif self._is_in_body:
            self._expect(self._close if self.cycle.response_complete else None)
        elif self._is_in_head or self._stray_bytes:
            self._unset_keepalive_if_required()
            self._expect(self._on_slow_head)
        else:
            self._expect(None)
            if not self._unanswered and self.timeout_keep_alive_task is None:
                self._start_keep_alive()

    def _expect(self, on_time: Callable[[], None] | None) -> None:
        """Calls `on_time` when the client's time is up. Told the same again, the time is not prolonged."""
        if on_time != self._on_time:
            self._start_timer(self._limits.body_timeout_s, on_time)

    def _start_timer(self, delay_s: float, on_time: Callable[[], None] | None) -> None:
        """As `_expect`, in a time of its own that begins now."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_time = on_time
        self._timer = None if on_time is None else self.loop.call_later(delay_s, on_time)

    def _start_keep_alive(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _start_send_timer(self) -> None:
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self._limits.send_timeout_s, self.transport.abort)

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _start_probes(self, delay_s: float) -> None:
        self._start_timer(delay_s, lambda: self._probe(delay_s))

    def _probe(self, delay_s: float) -> None:
        """Asks whether the client of the one answer that is due still listens. HTTP/1.0 has no such question."""
        if self.scope["http_version"] == "1.0":
            self.transport.abort()
            return
        if self._unanswered == 1 and not self.cycle.response_started:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._start_probes(2 * delay_s)

    def _on_slow_head(self) -> None:
        self._end(head_too_slow(self._limits.body_timeout_s))

    def _refuse(self) -> None:
        """Answers on the first bytes that there are too many connections."""
        self._is_refused = False
        self._answer(too_many_connections(self._limits.max_connections))
        self._linger(LINGER_S)

    def _end(self, error: ServiceError) -> None:
        """Reads no more; answers the requests that came before, then `error`, and closes the connection."""
        self._is_dropping = self._is_ending = True
        self._expect(None)
        self._last_word = error
        if self._is_in_body:
            self._give_up_request()
        self._end_when_answered()

    def _give_up_request(self) -> None:
        """Takes back the request whose body is not to be had. If its answer has begun, that is the last word."""
        if self.cycle.response_started:
            self._last_word = None
            return
        if self.pipeline:
            self.pipeline.popleft()
        self._unanswered -= 1
        self.cycle.disconnected = True
        self.cycle.message_event.set()

    def _end_when_answered(self) -> None:
        if self._unanswered:
            return
        if self._last_word is not None:
            self._answer(self._last_word)
        if self._is_half_closed:
            self._close()
        else:
            self._linger(LINGER_S)

    def _end_after_answer(self) -> None:
        """Closes the connection for the task of a request, behind its answer or in the midst of it."""
        if self._is_dropping and not self._is_ending:
            return
        if self._is_in_body:
            self._linger(self._limits.body_timeout_s)
        elif self._is_ending or self._unparsed:
            self._linger(LINGER_S)
        else:
            self._close()

    def _linger(self, seconds: float) -> None:
        """Writes no more, and drops what arrives until the client closes too or time is up."""
        self._answers.flush()
        self._is_dropping, self._is_ending = True, False
        self.flow.is_held = False
        self.flow.resume_reading()
        self.pipeline.clear()
        self._unparsed = b""
        self._unset_keepalive_if_required()
        if not self.transport.is_closing():
            self.transport.write_eof()
            self._start_timer(seconds, self._close)

    def _close(self) -> None:
        """Closes the connection; what is still to be written has its time."""
        self._answers.flush()
        self._expect(None)
        self._unset_keepalive_if_required()
        if not self.transport.is_closing():
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self._start_send_timer()

    def _answer(self, error: ServiceError) -> None:
        self.transport.write(closing_answer(error, self._limits.overload_status))

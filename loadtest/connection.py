"""One HTTP/1.1 connection for load: kept alive, one request in flight, callbacks instead of tasks.

Why not httpx or aiohttp: on a machine that generator and server share, every microsecond of the client is taken from
the server and reported as its latency. Request bytes are therefore framed before the clock runs, one `write` sends
them, the answer is parsed by httptools (the C parser that the server itself uses), and no task, pool or model object
is made per request. What it does not do follows from that: no redirects, cookies, proxies or compression, and answers
must be delimited by `Content-Length` or chunks.

Everything here runs on one event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from loadtest.clock import Clock
from loadtest.errors import LoadTestError
from loadtest.records import Failure


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens.

    Attributes:
        host: name or address.
        port: TCP port.
        is_tls: whether to speak TLS.
        prefix: path before `/v2`, empty for none.
    """

    host: str
    port: int
    is_tls: bool = False
    prefix: str = ""

    def frame(self, method: str, path: str, headers: tuple[tuple[str, str], ...] = (), body: bytes = b"") -> bytes:
        """A complete request as it goes over the wire."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines.extend(f"{name}: {value}" for name, value in headers)
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        return "\r\n".join(lines).encode("latin-1") + body


def parse_url(url: str) -> Endpoint:
    """The endpoint of `http://host:port` or `https://host:port`, with an optional path before `/v2`.

    Raises:
        LoadTestError: another scheme, no host, or no valid port.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LoadTestError(f"got URL {url!r}: {error}; expected something like http://127.0.0.1:8000") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise LoadTestError(f"got URL {url!r}; expected http:// or https:// and a host, such as http://127.0.0.1:8000")
    is_tls = parts.scheme == "https"
    return Endpoint(parts.hostname, port or (443 if is_tls else 80), is_tls, parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request.

    Attributes:
        status: HTTP status, or 0 without an answer.
        failure: why there is none, or None if there is one (of whatever status).
        sent_ns: when the request was written, or None if it never was.
        first_byte_ns: when the answer's first bytes arrived, or None.
        done_ns: when it was complete or had failed.
        header_length: `Inference-Header-Content-Length` of the answer, or None.
        server_timing: `Server-Timing` of the answer, empty if it had none.
        body: the whole body; for a failure, what is known about it in words.
    """

    status: int
    failure: Failure | None
    sent_ns: int | None
    first_byte_ns: int | None
    done_ns: int
    header_length: int | None = None
    server_timing: bytes = b""
    body: bytes = b""


OnAnswer = Callable[[Answer], None]


class ConnectionOwner(Protocol):
    """Who is told what becomes of a connection."""

    def on_idle(self, connection: Connection) -> None:
        """`connection` takes the next request."""
        ...

    def on_gone(self, connection: Connection) -> None:
        """`connection` takes no more requests. May be called again for the same connection."""
        ...

    def on_stale(self, request: bytes, on_answer: OnAnswer) -> None:
        """A reused connection was closed before it took `request`, which has to go out on another one."""
        ...


class Connection(asyncio.Protocol):
    """One socket for its whole life; one request in flight at a time."""

    def __init__(self, clock: Clock, owner: ConnectionOwner) -> None:
        self._clock = clock
        self._owner = owner
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._on_answer: OnAnswer | None = None
        self._request = b""
        self._is_reused = False
        self._is_complete = False
        self._is_kept = True
        self._sent_ns: int | None = None
        self._first_byte_ns: int | None = None
        self._header_length: int | None = None
        self._server_timing = b""
        self._chunks: list[bytes] = []

    @property
    def waiting_since_ns(self) -> int | None:
        """When the request in flight was written, or None if none is."""
        return self._sent_ns if self._on_answer is not None else None

    def send(self, request: bytes, on_answer: OnAnswer) -> None:
        """Writes a framed request; `on_answer` is called exactly once, never from within this call."""
        self._on_answer = on_answer
        self._request = request
        self._first_byte_ns = None
        self._header_length = None
        self._server_timing = b""
        self._chunks = []
        self._is_complete = False
        self._sent_ns = self._clock.now_ns()
        # A socket that is just closing reports so in `connection_lost`, which deals with the request.
        if self._transport is not None:
            self._transport.write(request)

    def fail(self, failure: Failure) -> None:
        """Drops the connection and ends the request in flight, if there is one."""
        self.drop()
        self._finish(0, failure, failure.value.encode())

    def drop(self) -> None:
        """Closes the socket; the request in flight, if there is one, stays unanswered."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._owner.on_gone(self)

    def _finish(self, status: int, failure: Failure | None, body: bytes) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is None:
            return
        answer = Answer(
            status,
            failure,
            self._sent_ns,
            self._first_byte_ns,
            self._clock.now_ns(),
            self._header_length,
            self._server_timing,
            body,
        )
        # The callback may send the next request: this connection has to be on offer by then.
        if self._transport is not None:
            self._owner.on_idle(self)
        on_answer(answer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._on_answer is None:
            self.drop()  # nobody asked for these bytes: nothing that follows on this socket can be trusted
            return
        if self._first_byte_ns is None:
            self._first_byte_ns = self._clock.now_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.drop()
            self._finish(0, Failure.MALFORMED, f"{error!r} in {data[:60]!r}".encode())
            return
        if not self._is_complete:
            return
        self._is_reused = True
        if not self._is_kept:
            self.drop()
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._finish(self._parser.get_status_code(), None, body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._owner.on_gone(self)
        if self._is_reused and self._first_byte_ns is None and self._on_answer is not None:
            # The server closed an idle connection just as the request left. Inference has no side effect, so the
            # request may go out once more (RFC 9110, section 9.2.2).
            on_answer, self._on_answer = self._on_answer, None
            self._owner.on_stale(self._request, on_answer)
            return
        self._finish(0, Failure.CLOSED, f"connection closed before the answer was complete: {exc!r}".encode())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header."""
        length = len(name)
        if length == 13 and name.lower() == b"server-timing":
            self._server_timing = value
        elif length == 31 and name.lower() == b"inference-header-content-length" and value.isdigit():
            self._header_length = int(value)

    def on_body(self, body: bytes) -> None:
        """Called by the parser for each piece of the body."""
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser at the end of the answer."""
        self._is_complete = True
        self._is_kept = self._parser.should_keep_alive()

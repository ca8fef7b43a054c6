"""How an HTTP/1.1 connection becomes a WebSocket: which request asks for it, and the handing over."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

import httptools

from service.api.target import parse_stream_target
from service.errors import InvalidInput
from service.requests import Clock
from service.websocket.handshake import RawHeaders, accept_headers, offered_subprotocols
from service.websocket.protocol import Bounds, Scope, WebSocketProtocol

_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Handshake:
    """A request that may become a WebSocket.

    Attributes:
        url: of the request, as it was sent.
        headers: of the request, names in lower case.
        accepted: headers of the answer that opens the WebSocket.
    """

    url: bytes
    headers: RawHeaders
    accepted: RawHeaders


def read_handshake(parser: Any, url: bytes, headers: RawHeaders) -> Handshake | None:
    """The handshake that a complete head is, or None.

    Every other request is served as it is, whatever it offers to upgrade to: a stream's route then says what it needs.

    Args:
        parser: of httptools, at the end of the head.
        url: the request's target.
        headers: names in lower case.
    """
    if not parser.should_upgrade() or parser.get_method() != b"GET" or parser.get_http_version() != "1.1":
        return None
    said = {name: text.lower() for name, text in headers}
    if said.get(b"upgrade") != b"websocket" or not _BODY_HEADERS.isdisjoint(said):
        return None
    path = httptools.parse_url(url).path.decode("ascii")
    if parse_stream_target(urllib.parse.unquote(path)) is None:
        return None
    accepted = accept_headers(path, headers)
    return None if accepted is None else Handshake(url, headers, accepted)


def too_early() -> InvalidInput:
    """The refusal of a client that sends before it knows that it may (RFC 6455, section 4.1)."""
    return InvalidInput("the request asks for a WebSocket and goes on at once; wait for the answer, then send")


def open_websocket(http: Any, handshake: Handshake, bounds: Bounds, clock: Clock) -> None:
    """Gives the connection of uvicorn's protocol `http` to a `WebSocketProtocol`, and the application its scope."""
    parsed = httptools.parse_url(handshake.url)
    scope: Scope = {
        **http.scope,
        "type": "websocket",
        "asgi": {"version": http.asgi_version, "spec_version": "2.4"},
        "scheme": "wss" if http.scheme == "https" else "ws",
        "path": urllib.parse.unquote(parsed.path.decode("ascii")),
        "raw_path": parsed.path,
        "query_string": parsed.query or b"",
        "subprotocols": offered_subprotocols(handshake.headers),
        "extensions": {"websocket.http.response": {}},
    }
    websocket = WebSocketProtocol(http.app, scope, handshake.accepted, bounds, clock)
    websocket.attach(http.transport, http.server_state, http.loop)
    http.transport.set_protocol(websocket)

"""The opening handshake (RFC 6455, section 4.2): whether a request may become a WebSocket, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.server import ServerProtocol

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Names and values of HTTP headers, in bytes."""

SWITCHING = HTTPStatus.SWITCHING_PROTOCOLS


def accept_headers(path: str, headers: RawHeaders) -> RawHeaders | None:
    """Headers of the answer that opens the WebSocket, without extensions; None where the request is no handshake.

    Args:
        path: of the request, as it was sent.
        headers: of the request, a GET of HTTP/1.1.
    """
    said = Headers([(name.decode("latin-1"), text.decode("latin-1")) for name, text in headers])
    response = ServerProtocol().accept(Request(path, said))
    if response.status_code != SWITCHING:
        return None
    return [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", response.headers["Sec-WebSocket-Accept"].encode()),
    ]


def offered_subprotocols(headers: RawHeaders) -> list[str]:
    """What the client offers in `Sec-WebSocket-Protocol`, in its order."""
    offered = (text.decode("latin-1") for name, text in headers if name == b"sec-websocket-protocol")
    return [token.strip() for line in offered for token in line.split(",") if token.strip()]


def http_head(status: int, headers: RawHeaders) -> bytes:
    """The head of an HTTP/1.1 answer."""
    lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
    lines += [b"%s: %s" % header for header in headers]
    return b"\r\n".join((*lines, b"", b""))

"""HTTP messages where the parser leaves a question open, and errors as messages of their own.

How a body is framed is refused where it is not sure: a body misread is a request forged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias

import httptools

from service.api.errors import error_body, error_headers, status_of
from service.errors import BodyTimeout, InvalidInput, Overloaded, PayloadTooLarge, ServiceError, Unsupported

MAX_HEAD_BYTES = 64 << 10
"""Largest head, and the most that may arrive between two parts of a chunked body, or behind its last."""

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def announced_bytes(headers: Headers, *, is_http_1_0: bool) -> int:
    """The length of a body, from a complete head; 0 where it is chunked or there is none.

    Raises:
        InvalidInput, Unsupported: `Transfer-Encoding` is anything but `chunked` in HTTP/1.1.
    """
    length = 0
    for name, text in headers:
        if name == b"content-length":
            length = int(text)
        elif name == b"transfer-encoding":
            _check_transfer_encoding(text, is_http_1_0=is_http_1_0)
    return length


def head_too_large() -> PayloadTooLarge:
    """The refusal of a head, or of what else surrounds a body."""
    return PayloadTooLarge(f"the request's head exceeds {MAX_HEAD_BYTES} bytes; send fewer or shorter headers")


def head_too_slow(timeout_s: float) -> BodyTimeout:
    """What a client is told whose head did not come to its end."""
    return BodyTimeout(
        f"the request's head was not complete {timeout_s:g} seconds after its first byte; send it without pauses"
    )


def too_many_connections(max_connections: int) -> Overloaded:
    """What the client of a connection is told that is one too many."""
    return Overloaded(
        f"the server has its {max_connections} connections; retry later, use the connections that you have for more "
        "requests, or raise INFERLANE_MAX_CONNECTIONS",
        retry_after_s=1.0,
    )


def closing_answer(error: ServiceError, overload_status: int) -> bytes:
    """An error as a whole message, behind which the connection is closed."""
    status = status_of(error, overload_status)
    body = error_body(error)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **error_headers(error),
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{key}: {text}" for key, text in headers.items())]
    return "\r\n".join((*lines, "", "")).encode() + body


def not_http(error: httptools.HttpParserError) -> ServiceError:
    """What a client is told whose request the parser refused: our own reason, where it was ours, else the parser's."""
    cause = error.__context__
    if isinstance(cause, ServiceError):
        return cause
    if isinstance(error, httptools.HttpParserCallbackError):
        return InvalidInput("the request's target cannot be read; send an absolute path, percent-encoded in ASCII")
    return InvalidInput(f"the request cannot be read: {str(error) or type(error).__name__}; send HTTP/1.1")


def new_parser(protocol: object) -> httptools.HttpRequestParser:
    """A parser that tells `protocol` what it reads, and reads on behind a request that asks for a close."""
    parser: Any = httptools.HttpRequestParser(protocol)
    if hasattr(parser, "set_dangerous_leniencies"):
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser  # type: ignore[no-any-return]


def body_head(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A head after which a parser reads the body of the request with these headers, and nothing else of it."""
    framing = (b"%s: %s\r\n" % header for header in headers if header[0] in _FRAMING)
    return b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing)


def _check_transfer_encoding(text: bytes, *, is_http_1_0: bool) -> None:
    if is_http_1_0:
        raise InvalidInput("HTTP/1.0 has no Transfer-Encoding; send Content-Length, or HTTP/1.1")
    if text.strip().lower() != b"chunked":
        raise Unsupported(
            f"Transfer-Encoding is {text[:40].decode('latin-1')!r}, supported is 'chunked'; "
            "compress with Content-Encoding"
        )

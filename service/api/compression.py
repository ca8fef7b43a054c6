"""Compressed request and response bodies: gzip and deflate (in its zlib wrapper, as HTTP defines it)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from service.errors import InvalidInput, PayloadTooLarge, Unsupported

_WINDOW_BITS = {b"gzip": zlib.MAX_WBITS | 16, b"deflate": zlib.MAX_WBITS}
_FASTEST_LEVEL = 1  # tensors hardly shrink at higher levels, and the client waits


def decode_body(
    encoding: bytes | None, body: bytes | bytearray | memoryview, limit_bytes: int
) -> bytes | bytearray | memoryview:
    """The body as it was before its Content-Encoding.

    Memory stays within `limit_bytes`, whatever the compressed bytes claim. Takes about 5 ms per decompressed MB.

    Args:
        encoding: the value of Content-Encoding, or None.
        body: the body as it came.
        limit_bytes: largest body to return.

    Raises:
        Unsupported: another encoding, or several.
        InvalidInput: the compressed data is corrupt, cut short, or followed by more.
        PayloadTooLarge: the decompressed body exceeds `limit_bytes`.
    """
    name = b"identity" if encoding is None else encoding.strip().lower()
    if name in (b"", b"identity"):
        if len(body) > limit_bytes:
            raise PayloadTooLarge(f"the request body exceeds {limit_bytes} bytes; send less in one request")
        return body
    window_bits = _WINDOW_BITS.get(name)
    if window_bits is None:
        shown = name[:40].decode("ascii", "backslashreplace")
        raise Unsupported(f"Content-Encoding '{shown}' is not supported; send gzip, deflate or no compression")
    inflater = zlib.decompressobj(window_bits)
    try:
        inflated = inflater.decompress(body, limit_bytes + 1)
    except zlib.error:
        raise InvalidInput(
            f"the request body is no valid {name.decode()} data; "
            "deflate means the zlib format (RFC 1950), gzip RFC 1952"
        ) from None
    if len(inflated) > limit_bytes:
        raise PayloadTooLarge(f"the decompressed request body exceeds {limit_bytes} bytes; send less in one request")
    if not inflater.eof:
        raise InvalidInput(f"the {name.decode()} data of the request body is cut short; send it whole")
    if inflater.unused_data:
        raise InvalidInput(
            f"{len(inflater.unused_data)} bytes follow the {name.decode()} data of the request body; "
            "compress the whole body in one piece"
        )
    return inflated


def response_encoding(accept_encoding: bytes | None) -> bytes | None:
    """How to compress the response: `gzip`, `deflate`, or None.

    Tensors hardly shrink and cost milliseconds to compress, so a client must mean it: it names exactly one coding,
    which is gzip or deflate. Lists of everything that an HTTP library can decode (`gzip, deflate, br`) are sent
    without the user's knowledge and are not taken up. Quality 0 excludes a coding; `identity` with a higher
    quality than the coding wins.
    """
    if accept_encoding is None:
        return None
    quality_by_name: dict[bytes, float] = {}
    for item in accept_encoding.lower().split(b","):
        name, _, parameters = item.partition(b";")
        quality_by_name[name.strip()] = _quality(parameters)
    identity_quality = quality_by_name.pop(b"identity", 0.0)
    quality_by_name.pop(b"*", None)
    wanted = [(name, quality) for name, quality in quality_by_name.items() if quality > 0]
    if len(wanted) != 1:
        return None
    name, quality = wanted[0]
    return name if name in _WINDOW_BITS and quality >= identity_quality else None


def encode_body(encoding: bytes, chunks: Sequence[bytes | memoryview]) -> bytes:
    """The chunks, joined and compressed with `encoding`, which is `gzip` or `deflate`.

    Takes about 35 ms per MB of float tensors; the lengths that headers announce inside the body (the JSON header's)
    count bytes before compression.
    """
    deflater = zlib.compressobj(_FASTEST_LEVEL, zlib.DEFLATED, _WINDOW_BITS[encoding])
    return b"".join([*(deflater.compress(chunk) for chunk in chunks), deflater.flush()])


def _quality(parameters: bytes) -> float:
    """The `q` of one coding: 1 where it has none, 0 where it makes no sense."""
    name, _, value = parameters.partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0

"""The JSON header of an inference request: where it ends, and what it is before anyone reads its fields."""

from __future__ import annotations

from typing import Any

import orjson

from service.client_text import value_text
from service.errors import InvalidInput

_MAX_LENGTH_DIGITS = 18  # more than any body has, and well within what int() converts in constant time


def parse_header_length(value: bytes | None) -> int | None:
    """The value of `Inference-Header-Content-Length` in bytes, or None where the request does not carry it.

    The range is checked against the body by `split_header`, which also knows what 0 means.

    Raises:
        InvalidInput: the value is not a decimal integer.
    """
    if value is None:
        return None
    text = value.strip()
    digits = text[1:] if text.startswith(b"-") else text
    if not digits.isdigit() or len(digits) > _MAX_LENGTH_DIGITS:
        shown = text[:_MAX_LENGTH_DIGITS].decode("ascii", "backslashreplace")
        raise InvalidInput(
            f"Unable to parse Inference-Header-Content-Length, got: '{shown}'; "
            "send the length of the JSON header in bytes as a decimal integer"
        )
    return int(text)


def split_header(body: memoryview, header_length: int | None) -> memoryview:
    """The part of `body` that holds the JSON header: all of it where `header_length` is None.

    Raises:
        InvalidInput: the length is outside the body.
    """
    if header_length is None:
        return body
    if not 0 < header_length <= len(body):
        raise InvalidInput(
            f"inference header size should be in range (0, {len(body)}), got: {header_length}; "
            "Inference-Header-Content-Length counts the bytes of the JSON header, after decompression"
        )
    return body[:header_length]


def load_header(header: bytes | memoryview) -> dict[str, Any]:
    """The header as a JSON object; values are not checked yet.

    The parser bounds the nesting at 1024 levels, and refuses NaN, infinities and invalid UTF-8.

    Raises:
        InvalidInput: it is no JSON, or no object.
    """
    if not header:
        raise InvalidInput("the request body is empty; send a JSON object with 'inputs'")
    try:
        document = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"failed to parse the request JSON buffer: {error}") from None
    if type(document) is not dict:
        raise InvalidInput(f"the request must be a JSON object with 'inputs', got {value_text(document)}")
    return document


def parse_request_id(header: dict[str, Any]) -> str:
    """The request's `id`, empty where it has none.

    Raises:
        InvalidInput: it is not a string.
    """
    request_id = header.get("id", "")
    if type(request_id) is not str:
        raise InvalidInput(f"'id' must be a string, got {value_text(request_id)}; quote it or leave it out")
    return request_id

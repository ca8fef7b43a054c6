"""Answers as orjson writes them, and JSON request bodies read within bounds of size and time."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.errors import BodyTimeout, ClientGone, InvalidInput, PayloadTooLarge

MAX_ADMIN_BODY_BYTES = 64 << 10
"""Largest body of a request that carries no tensors."""


class JsonResponse(Response):
    """A JSON answer; the content is anything that orjson encodes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encodes `content` as UTF-8 JSON."""
        return orjson.dumps(content)


async def read_json_object(request: Request, *, timeout_s: float) -> dict[str, Any]:
    """The JSON object in a request's body; an empty body counts as `{}`. The content type is not looked at.

    Holds at most `MAX_ADMIN_BODY_BYTES` and one chunk, whether or not the body announces its length.

    Raises:
        PayloadTooLarge: the body is longer than `MAX_ADMIN_BODY_BYTES`.
        BodyTimeout: the body is not complete after `timeout_s`.
        ClientGone: the client closed its connection before the body was complete.
        InvalidInput: the body is not a JSON object.
    """
    try:
        body = await asyncio.wait_for(_read_bounded(request), timeout_s)
    except asyncio.TimeoutError:
        raise BodyTimeout(f"the body was not complete after {timeout_s:g} s; send it in one piece") from None
    except ClientDisconnect:
        raise ClientGone("the client closed its connection before the body was complete") from None
    if not body:
        return {}
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not valid JSON ({error}); send a JSON object or an empty body") from None
    if not isinstance(content, dict):
        raise InvalidInput(f"the body is a JSON {type(content).__name__}; send a JSON object or an empty body")
    return content


async def _read_bounded(request: Request) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_ADMIN_BODY_BYTES:
            raise PayloadTooLarge(
                f"the body has more than {MAX_ADMIN_BODY_BYTES} bytes, the most that this route takes; "
                "tensors go to /v2/models/{model}/infer"
            )
    return body

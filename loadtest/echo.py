"""The raw ASGI echo that speed bars compare with: reads a body completely and answers the same bytes.

Run by the same web server and in the same way as the service, with nothing in between, so that the difference to it
is what the service itself costs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any

import typer
import uvicorn

_Message = MutableMapping[str, Any]


async def echo(
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
) -> None:
    """The ASGI application: 200 with the request's own body, on every path and method."""
    if scope["type"] != "http":
        raise RuntimeError(f"the echo serves http alone, got a scope of type {scope['type']!r}")
    parts = []
    is_more = True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        parts.append(message.get("body", b""))
        is_more = message.get("more_body", False)
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8001,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Serves the echo until it is stopped."""
    uvicorn.run(echo, host=host, port=port, lifespan="off", access_log=False, log_level="warning", server_header=False)


if __name__ == "__main__":
    typer.run(main)

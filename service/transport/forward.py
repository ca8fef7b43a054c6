"""A front end's ASGI application for all that is not inference: it hands calls to the engine's application.

The engine answers them: there are the models, the figures and the diagnosis of the whole server. A front end says by
itself only that it lives, and that there is no engine.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.errors import error_response
from service.errors import NotReady, PayloadTooLarge
from service.transport.channel import Channel
from service.transport.forward_wire import (
    Head,
    Part,
    pack_call,
    pack_part,
    pack_taken,
    unpack_head,
    unpack_part,
)
from service.transport.remote_requests import engine_away
from service.transport.wire import Malformed

LIVE_PATH = "/v2/health/live"
MAX_BODY_BYTES = 16 << 20
"""Of what is no inference; far above what any such route takes."""

_SCOPE_KEYS = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path")


_Answer: TypeAlias = "asyncio.Queue[tuple[Part, memoryview]]"
"""What has come of an answer, until its client takes it."""


class Forward:
    """Hands calls to the engine; a `Forwarding` of the channel to it. On the event loop.

    Args:
        overload_status: status of refusals for overload.
    """

    def __init__(self, *, overload_status: int) -> None:
        self._overload_status = overload_status
        self._channel: Channel | None = None
        self._answers: dict[int, _Answer] = {}
        self._number = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        elif scope["path"] == LIVE_PATH and scope["method"] == "GET":
            await Response()(scope, receive, send)
        elif self._channel is None:
            await error_response(engine_away(), self._overload_status)(scope, receive, send)
        else:
            await self._forward(self._channel, scope, receive, send)

    def attach(self, channel: Channel) -> None:
        """Calls go there from now on."""
        self._channel = channel

    def received(self, payload: memoryview) -> None:
        """A part of an answer has come; see `Forwarding`."""
        part, number, content = unpack_part(payload)
        if part not in (Part.HEAD, Part.BODY, Part.LAST_BODY, Part.BROKEN):
            raise Malformed(f"a front end is sent a part {part.name}")
        answer = self._answers.get(number)
        if answer is not None:
            answer.put_nowait((part, content))

    def lost(self) -> None:
        """The engine is gone: no call goes on; see `Forwarding`."""
        self._channel = None
        for answer in self._answers.values():
            answer.put_nowait((Part.BROKEN, memoryview(b"")))

    async def _forward(self, channel: Channel, scope: Scope, receive: Receive, send: Send) -> None:
        self._number += 1
        number = self._number
        answer: _Answer = asyncio.Queue()
        self._answers[number] = answer
        channel.send(pack_call(number, _plain(scope)))
        sending = asyncio.create_task(self._send_body(channel, number, receive))
        is_whole = False
        try:
            head = await _head(answer, sending)
            await send({"type": "http.response.start", "status": head.status, "headers": head.headers})
            await self._pass_body(channel, number, answer, send)
            is_whole = True
        except (PayloadTooLarge, NotReady) as error:
            await error_response(error, self._overload_status)(scope, receive, send)
        finally:
            del self._answers[number]
            if not is_whole:
                channel.send(pack_part(Part.GONE, number))
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _pass_body(self, channel: Channel, number: int, answer: _Answer, send: Send) -> None:
        while True:
            part, content = await answer.get()
            if part is Part.BROKEN:
                raise ConnectionError("the engine went in the midst of an answer")  # the client must not take it whole
            is_last = part is Part.LAST_BODY
            await send({"type": "http.response.body", "body": bytes(content), "more_body": not is_last})
            if is_last:
                return
            channel.send(pack_taken(number, len(content)))

    async def _send_body(self, channel: Channel, number: int, receive: Receive) -> None:
        """Sends what the client sends, to its end; then waits for the client to go."""
        nbytes, is_more = 0, True
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                channel.send(pack_part(Part.GONE, number))
                return
            if not is_more:
                continue
            body: bytes = message.get("body", b"")
            is_more = message.get("more_body", False)
            nbytes += len(body)
            if nbytes > MAX_BODY_BYTES:
                channel.send(pack_part(Part.GONE, number))
                raise PayloadTooLarge(
                    f"the request's body has more than {MAX_BODY_BYTES} bytes; no route but inference takes so much"
                )
            channel.send(pack_part(Part.BODY if is_more else Part.LAST_BODY, number, body))
            await channel.drain()


async def _head(answer: _Answer, sending: asyncio.Task[None]) -> Head:
    """The head of an answer.

    Raises:
        PayloadTooLarge: the request's body is.
        NotReady: the engine has gone, or has no answer.
    """
    waiting = asyncio.create_task(answer.get())
    try:
        await asyncio.wait({waiting, sending}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
        part, content = await waiting
    finally:
        waiting.cancel()
    if part is not Part.HEAD:
        raise engine_away()
    return unpack_head(content)


def _plain(scope: Scope) -> dict[str, Any]:
    """What of a scope can travel: the rest are objects of this process."""
    plain = {key: scope[key] for key in _SCOPE_KEYS if key in scope}
    plain["headers"] = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    plain["client"], plain["server"] = scope.get("client"), scope.get("server")
    return plain

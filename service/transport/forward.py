"""A front end's ASGI application for all that is not inference: it hands calls to the engine's application.

The engine answers them: there are the models, the figures and the diagnosis of the whole server. A front end says by
itself only that it lives, and that there is no engine.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.errors import error_response
from service.errors import PayloadTooLarge
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


class _Call:
    """A call that the engine has; what comes of it waits here until the client takes it."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: asyncio.Queue[tuple[Part, memoryview]] = asyncio.Queue()


class Forward:
    """Hands calls to the engine; a `Forwarding` of the channel to it. On the event loop.

    Args:
        overload_status: status of refusals for overload.
    """

    def __init__(self, *, overload_status: int) -> None:
        self._overload_status = overload_status
        self._channel: Channel | None = None
        self._calls: dict[int, _Call] = {}
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
        call = self._calls.get(number)
        if call is not None:
            call.answer.put_nowait((part, content))

    def lost(self) -> None:
        """The engine is gone: no call goes on; see `Forwarding`."""
        self._channel = None
        for call in self._calls.values():
            call.answer.put_nowait((Part.BROKEN, memoryview(b"")))

    async def _forward(self, channel: Channel, scope: Scope, receive: Receive, send: Send) -> None:
        self._number += 1
        number, call = self._number, _Call()
        self._calls[number] = call
        channel.send(pack_call(number, _plain(scope)))
        sending = asyncio.create_task(self._send_body(channel, number, receive))
        is_whole = False
        try:
            is_whole = await self._pass_answer(channel, number, call, sending, (scope, receive, send))
        finally:
            sending.cancel()
            del self._calls[number]
            if not is_whole:
                channel.send(pack_part(Part.GONE, number))

    async def _pass_answer(
        self,
        channel: Channel,
        number: int,
        call: _Call,
        sending: asyncio.Task[None],
        connection: tuple[Scope, Receive, Send],
    ) -> bool:
        """Passes an answer on; whether it came whole."""
        send = connection[2]
        waiting = asyncio.create_task(call.answer.get())
        await asyncio.wait({waiting, sending}, return_when=asyncio.FIRST_COMPLETED)
        refused = sending.exception() if sending.done() and not sending.cancelled() else None
        if isinstance(refused, PayloadTooLarge):
            waiting.cancel()
            await error_response(refused, self._overload_status)(*connection)
            return False
        part, content = await waiting
        if part is not Part.HEAD:
            await error_response(engine_away(), self._overload_status)(*connection)
            return False
        head: Head = unpack_head(content)
        await send({"type": "http.response.start", "status": head.status, "headers": head.headers})
        while True:
            part, content = await call.answer.get()
            if part is Part.BROKEN:
                raise ConnectionError("the engine went in the midst of an answer")  # the client must not take it whole
            is_last = part is Part.LAST_BODY
            await send({"type": "http.response.body", "body": bytes(content), "more_body": not is_last})
            if is_last:
                return True
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
                raise PayloadTooLarge(
                    f"the request's body has more than {MAX_BODY_BYTES} bytes; no route but inference takes so much"
                )
            channel.send(pack_part(Part.BODY if is_more else Part.LAST_BODY, number, body))
            await channel.drain()


def _plain(scope: Scope) -> dict[str, Any]:
    """What of a scope can travel: the rest are objects of this process."""
    plain = {key: scope[key] for key in _SCOPE_KEYS if key in scope}
    plain["headers"] = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    plain["client"], plain["server"] = scope.get("client"), scope.get("server")
    return plain

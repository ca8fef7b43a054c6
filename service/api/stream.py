"""`GET /v2/models/M/stream`: a WebSocket on which a client sends frames and is sent what the model makes of them.

The first message is text, a header (`stream_header.py`); it is answered by `{"ready": true, ...}`, or by an error and a
close. Then every binary message is a frame, and every answer a text message (`stream_session.py`).
"""

from __future__ import annotations

import asyncio

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.frames import CloseCode

from service.api.endpoint import WRONG_METHOD, record_failure
from service.api.gate import KEY_SUBPROTOCOL
from service.api.stream_frame import refusal
from service.api.stream_header import FRESHNESS, StreamHeader, parse_header
from service.api.stream_session import End, Streams, StreamSession, as_frame_task
from service.api.target import Target, parse_stream_target
from service.errors import BodyTimeout, ServiceError, UnsupportedMediaType

MAX_REASON_BYTES = 123
"""What a close frame has room for, by RFC 6455, section 5.5."""


class StreamEndpoint:
    """ASGI middleware that serves streams itself, and passes everything else on."""

    def __init__(self, app: ASGIApp, streams: Streams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection, or one request that should have been one."""
        target = parse_stream_target(scope["path"]) if scope["type"] in {"http", "websocket"} else None
        if target is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            self._streams.recorder.record_unattributed(WRONG_METHOD)
            await _needs_websocket(scope["method"])(scope, receive, send)
        else:
            await self._serve(target, scope, receive, send)

    async def _serve(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        # A browser takes no answer that does not name one of the subprotocols that it offered.
        subprotocol = KEY_SUBPROTOCOL if KEY_SUBPROTOCOL in scope["subprotocols"] else None
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        self._streams.recorder.record_streams(1)
        try:
            end = await self._converse(target, receive, send)
            if end.code is not None:
                await send({"type": "websocket.close", "code": end.code, "reason": _cut(end.reason)})
        finally:
            self._streams.recorder.record_streams(-1)

    async def _converse(self, target: Target, receive: Receive, send: Send) -> End:
        try:
            header = await self._read_header(target, receive, send)
        except ServiceError as error:
            record_failure(self._streams.registry, self._streams.recorder, target, error)
            await send({"type": "websocket.send", "text": refusal(error.message)})
            return End(close_code(error), error.message)
        if header is None:
            return End(None)
        return await StreamSession(self._streams, target, header, receive, send).run()

    async def _read_header(self, target: Target, receive: Receive, send: Send) -> StreamHeader | None:
        """Agrees with the client on what it sends; None where it leaves instead."""
        streams = self._streams
        try:
            message = await asyncio.wait_for(receive(), streams.header_timeout_s)
        except asyncio.TimeoutError:
            raise BodyTimeout(
                f"the header did not come within {streams.header_timeout_s:g} s; send it at once"
            ) from None
        if message["type"] == "websocket.disconnect":
            return None
        streams.budget.give_back(message["held_bytes"])
        if message["refusal"] is not None:
            raise message["refusal"]
        if "text" not in message:
            raise UnsupportedMediaType("the first message is binary; send the header as a text message, then frames")
        served = streams.registry.get(target.model, target.version)
        task = as_frame_task(served.task, served)
        header = parse_header(message["text"], streams.limits)
        task.check_options(header.options)
        ready = {
            "ready": True,
            "model_name": served.spec.name,
            "model_version": served.spec.version,
            "format": header.format,
            "max_in_flight": header.max_in_flight,
            "freshness": FRESHNESS[header.is_latest],
            "max_frame_bytes": streams.limits.max_frame_bytes,
        }
        await send({"type": "websocket.send", "text": orjson.dumps(ready).decode()})
        return header


def close_code(error: ServiceError) -> CloseCode:
    """What a stream is closed with whose header was refused for `error`."""
    if isinstance(error, UnsupportedMediaType):
        return CloseCode.UNSUPPORTED_DATA
    if error.status == 503:
        return CloseCode.TRY_AGAIN_LATER
    return CloseCode.INTERNAL_ERROR if error.status >= 500 else CloseCode.POLICY_VIOLATION


def _needs_websocket(method: str) -> Response:
    if method != "GET":
        text = f"method not allowed: '{method}' on /stream; this route takes GET, as a WebSocket"
        return Response(orjson.dumps({"error": text}), 405, {"Allow": "GET"}, "application/json")
    # A handshake may follow another request on its connection, before that is answered. No WebSocket client does so,
    # and holding it back would take a state that every connection pays for.
    text = (
        "this route is a WebSocket; open it with a WebSocket client, by HTTP/1.1 and version 13 of the protocol, on a "
        "connection on which no other answer is due"
    )
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    return Response(orjson.dumps({"error": text}), 426, headers, "application/json")


def _cut(reason: str) -> str:
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")

"""The engine's side of forwarded calls: runs its ASGI application for clients that front ends talk to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message

from service.transport.channel import Channel
from service.transport.forward_wire import (
    WINDOW_BYTES,
    Head,
    Part,
    pack_head,
    pack_part,
    unpack_part,
    unpack_scope,
    unpack_taken,
)
from service.transport.wire import Malformed

CHUNK_BYTES = 64 << 10

_log = logging.getLogger(__name__)


class _Call:
    """One call: what its client sends, and how much of the answer is under way. On the event loop."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._under_way_bytes = 0
        self._is_gone = False
        self.is_whole = False

    def body(self, content: bytes, *, is_last: bool) -> None:
        """The client has sent bytes of its body."""
        self._incoming.put_nowait({"type": "http.request", "body": content, "more_body": not is_last})

    def gone(self) -> None:
        """The client has gone: what is sent reaches nobody."""
        self._is_gone = True
        self._incoming.put_nowait({"type": "http.disconnect"})
        self._may_send.set()

    def taken(self, nbytes: int) -> None:
        """The client has taken bytes of the answer."""
        self._under_way_bytes -= nbytes
        if self._under_way_bytes < WINDOW_BYTES:
            self._may_send.set()

    async def receive(self) -> Message:
        """See ASGI."""
        if self._is_gone and self._incoming.empty():
            return {"type": "http.disconnect"}
        return await self._incoming.get()

    async def send(self, message: Message) -> None:
        """See ASGI; waits while the client has not taken what was sent before."""
        if self._is_gone:
            return
        if message["type"] == "http.response.start":
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._channel.send(pack_head(self._number, Head(message["status"], headers)))
            return
        body = memoryview(message.get("body", b""))
        is_last = not message.get("more_body", False)
        for start in range(0, max(1, len(body)), CHUNK_BYTES):
            chunk = body[start : start + CHUNK_BYTES]
            is_last_chunk = is_last and start + CHUNK_BYTES >= len(body)
            await self._send_chunk(chunk, is_last=is_last_chunk)
        self.is_whole = is_last

    async def _send_chunk(self, chunk: memoryview, *, is_last: bool) -> None:
        await self._may_send.wait()
        if self._is_gone:
            return
        self._channel.send(pack_part(Part.LAST_BODY if is_last else Part.BODY, self._number, chunk))
        self._under_way_bytes += len(chunk)
        if self._under_way_bytes >= WINDOW_BYTES:
            self._may_send.clear()


class EngineForwarding:
    """Calls of one front end; a `Forwarding` of the channel to it. On the event loop.

    Args:
        app: answers them.
        settle: lets the figures, which calls may ask for, become those of this moment.
        channel: to the front end.
    """

    def __init__(self, app: ASGIApp, settle: Callable[[], Awaitable[None]], channel: Channel) -> None:
        self._app = app
        self._settle = settle
        self._channel = channel
        self._calls: dict[int, _Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def received(self, payload: memoryview) -> None:
        """A part of a call has come; see `Forwarding`."""
        part, number, content = unpack_part(payload)
        if part is Part.CALL:
            self._begin(number, unpack_scope(content))
            return
        if part not in (Part.BODY, Part.LAST_BODY, Part.GONE, Part.TAKEN):
            raise Malformed(f"the engine is sent a part {part.name}")
        call = self._calls.get(number)
        if call is None:
            return  # it was answered while this was on its way
        if part is Part.GONE:
            call.gone()
        elif part is Part.TAKEN:
            call.taken(unpack_taken(content))
        else:
            call.body(bytes(content), is_last=part is Part.LAST_BODY)

    def lost(self) -> None:
        """The front end is gone, and its clients with it; see `Forwarding`."""
        for call in self._calls.values():
            call.gone()

    def _begin(self, number: int, scope: dict[str, Any]) -> None:
        if number in self._calls:
            raise Malformed(f"call {number} begins twice")
        call = self._calls[number] = _Call(self._channel, number)
        task = asyncio.create_task(self._run(number, call, scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, number: int, call: _Call, scope: dict[str, Any]) -> None:
        try:
            await self._settle()
            await self._app(scope, call.receive, call.send)
        except Exception:
            _log.exception("a forwarded call of %s failed", scope.get("path"))
        finally:
            del self._calls[number]
            if not call.is_whole:
                self._channel.send(pack_part(Part.BROKEN, number))

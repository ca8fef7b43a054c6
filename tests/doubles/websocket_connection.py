"""A WebSocket connection whose client is the test: bytes in, bytes out, and timers that the test fires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from uvicorn.server import ServerState
from websockets.frames import Close, Frame, Opcode

from service.api.body import ByteBudget
from service.websocket.protocol import Application, Bounds, Message, WebSocketProtocol
from tests.doubles.http_connection import Timer, Transport

MESSAGE_TIMEOUT_S = 3.0
SEND_TIMEOUT_S = 5.0
MAX_MESSAGE_BYTES = 100_000
MAX_IN_FLIGHT_BYTES = 250_000
ACCEPTED = [(b"upgrade", b"websocket"), (b"sec-websocket-accept", b"yes")]


class Loop:
    """Runs tasks on the real loop; timers wait for the test."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, callback))
        return self.timers[-1]

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)

    @property
    def delays_s(self) -> list[float]:
        return sorted(timer.delay_s for timer in self.timers if not timer.is_cancelled)

    def fire(self, delay_s: float) -> None:
        (timer,) = [timer for timer in self.timers if timer.delay_s == delay_s and not timer.is_cancelled]
        self.timers.remove(timer)
        timer.callback()


class WebSocketConnection:
    """One connection, whose application does what the test awaits on `receive` and `send`."""

    def __init__(self, app: Application | None = None) -> None:
        self.loop = Loop()
        self.transport = Transport()
        self.state = ServerState()
        self.budget = ByteBudget(MAX_IN_FLIGHT_BYTES)
        self.may_return = asyncio.Event()
        bounds = Bounds(MESSAGE_TIMEOUT_S, SEND_TIMEOUT_S, MAX_MESSAGE_BYTES, self.budget)
        self.protocol = WebSocketProtocol(app or self._app, {"type": "websocket"}, ACCEPTED, bounds, lambda: 1)
        self.protocol.attach(self.transport, self.state, self.loop)  # type: ignore[arg-type]
        self.receive: Callable[[], Coroutine[Any, Any, Message]] = self.protocol._receive
        self.send: Callable[[Message], Coroutine[Any, Any, None]] = self.protocol._send

    async def _app(self, scope: object, receive: object, send: object) -> None:
        await self.may_return.wait()

    async def opened(self) -> WebSocketConnection:
        """After the handshake, with nothing written yet."""
        assert await self.receive() == {"type": "websocket.connect"}
        await self.send({"type": "websocket.accept"})
        self.transport.writes.clear()
        return self

    async def awaiting(self) -> asyncio.Task[Message]:
        """The application's next message, awaited, so that the socket is read."""
        task = asyncio.get_running_loop().create_task(self.receive())
        await asyncio.sleep(0)
        return task

    def client_sends(self, *frames: Frame, size: int = 1 << 30) -> None:
        """Bytes on the socket, as far as it is read."""
        self.client_sends_bytes(b"".join(frame.serialize(mask=True) for frame in frames), size)

    def client_sends_bytes(self, sent: bytes, size: int = 1 << 30) -> None:
        while sent:
            assert self.transport.is_read
            room = self.protocol.get_buffer(-1)
            nbytes = min(len(room), len(sent), size)
            room[:nbytes] = sent[:nbytes]
            sent = sent[nbytes:]
            self.protocol.buffer_updated(nbytes)

    def lose(self) -> None:
        """The connection is gone."""
        self.transport.is_closed = True
        self.protocol.connection_lost(None)

    @property
    def closed_with(self) -> Close | None:
        """The close frame that was written last, if one was."""
        place = self.transport.written.rfind(b"\x88")
        return Close.parse(self.transport.written[place + 2 :]) if place >= 0 else None


def binary(data: bytes) -> Frame:
    return Frame(Opcode.BINARY, data)


def text(data: str) -> Frame:
    return Frame(Opcode.TEXT, data.encode())

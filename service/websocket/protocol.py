"""One WebSocket connection under uvicorn: an ASGI application on one side, a socket on the other.

Nothing is read that the application has not asked for, so a client that sends faster than it is served is held back by
TCP. Clients that stall are cut off: those that do not finish a message, do not take answers, or no longer exist.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from uvicorn.server import ServerState
from websockets.frames import Close, CloseCode, Frame, Opcode

from service.requests import Clock
from service.websocket.frame_head import ProtocolViolation
from service.websocket.handshake import SWITCHING, RawHeaders, http_head
from service.websocket.incoming import Budget
from service.websocket.reader import Fragment, MessageReader, Ping, Pong
from service.websocket.reader import Message as Received

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""As ASGI has them."""

PING_INTERVAL_S = 20.0
"""How often a client is asked whether it is there; one that has been silent since the last time is gone."""

CLOSE_TIMEOUT_S = 2.0
"""How long a client may take to answer a close."""

DEAF_BYTES = 64 << 10
"""What is read at once of a client that broke the protocol, and thrown away."""

FRAMES_AT_ONCE = 32
"""That are handled before the event loop serves others: a read can bring thousands of empty ones."""

logger = logging.getLogger(__name__)


class Disconnected(OSError):
    """The application sent to a client that has gone."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a client may take.

    Attributes:
        message_timeout_s: seconds within which a message must arrive, from its first byte.
        send_timeout_s: seconds within which a client must take what the system's buffers do not.
        max_message_bytes: largest message.
        budget: bytes that all requests together may hold; whoever receives a message gives its bytes back.
    """

    message_timeout_s: float
    send_timeout_s: float
    max_message_bytes: int
    budget: Budget


class WebSocketProtocol(asyncio.BufferedProtocol):
    """Takes over a connection whose head asked for a WebSocket. On the event loop.

    The ASGI messages are the standard's, with the HTTP answer extension, and these additions. `websocket.receive` has
    `held_bytes`, `received_ns` and `refusal`, see `reader.Message`. `websocket.disconnect` has `is_stopping` where it
    is the server that wants to end: the application may then send what it still owes, and a close.

    Args:
        app: the application.
        scope: the connection's ASGI scope, of type `websocket`.
        accepted: headers of the answer that opens the WebSocket.
        bounds: what the client may take.
        clock: monotonic nanoseconds.
    """

    def __init__(self, app: Application, scope: Scope, accepted: RawHeaders, bounds: Bounds, clock: Clock) -> None:
        self._app = app
        self._scope = scope
        self._accepted = accepted
        self._bounds = bounds
        self._reader = MessageReader(max_bytes=bounds.max_message_bytes, budget=bounds.budget, clock=clock)
        self._events: deque[Message] = deque([{"type": "websocket.connect"}])
        self._waiter: asyncio.Future[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._refusal: Message = {}
        self._is_open = False
        self._is_over = False
        self._is_deaf = False
        self._has_sent_close = False
        self._is_reading = False
        self._is_heard = True

    def attach(self, transport: asyncio.Transport, state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to serve the connection; the transport is given to it by the caller."""
        self._loop = loop
        self._transport = transport
        self._state = state
        state.connections.add(self)  # type: ignore[arg-type]  # of it, uvicorn calls `shutdown` alone
        transport.pause_reading()
        task = self._loop.create_task(self._serve())
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)

    def shutdown(self) -> None:
        """Called by uvicorn when the server is to end: the application is told, and ends the connection."""
        self._put_disconnect(CloseCode.GOING_AWAY, "the server is stopping", is_stopping=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the application, and gives back what the connection holds."""
        self._put_disconnect(CloseCode.ABNORMAL_CLOSURE, "")
        self._is_over = True
        self._state.connections.discard(self)
        self._reader.close()
        self._writable.set()
        for name in tuple(self._timers):
            self._set_timer(name, None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the socket is read into."""
        return memoryview(bytearray(DEAF_BYTES)) if self._is_deaf else self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Takes what was read."""
        self._is_heard = True
        if not self._is_deaf:
            self._reader.received(nbytes)
            self._take_events()
            if not self._is_wanting():
                self._pause_reading()  # the application was told something else, and there may be no room for more

    def eof_received(self) -> bool:
        """A client that ends its side has gone: there is nothing to answer any more."""
        return False

    def pause_writing(self) -> None:
        """Gives the client its time to take what was written; then its memory is taken back."""
        self._writable.clear()
        self._set_timer("send", self._bounds.send_timeout_s, self._transport.abort)

    def resume_writing(self) -> None:
        """The client has taken enough of it."""
        self._writable.set()
        self._set_timer("send", None)

    async def _serve(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except Disconnected:
            pass
        except Exception:
            logger.exception("a WebSocket's application failed")
            self._close(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            if not self._has_sent_close:
                self._close(CloseCode.GOING_AWAY, "")
            for event in self._events:
                self._bounds.budget.give_back(event.get("held_bytes", 0))
            self._events.clear()

    async def _receive(self) -> Message:
        while not self._events:
            self._waiter = self._loop.create_future()
            self._take_events()
            if self._events:
                break
            self._resume_reading()
            await self._waiter
        self._waiter = None
        return self._events.popleft()

    async def _send(self, message: Message) -> None:
        await self._writable.wait()
        if self._is_over or self._has_sent_close:
            raise Disconnected("the connection is closed")
        match message["type"]:
            case "websocket.accept":
                self._accept(message.get("subprotocol"))
            case "websocket.send":
                self._write(Frame(Opcode.TEXT, message["text"].encode()))
            case "websocket.close" if self._is_open:
                self._close(message.get("code", CloseCode.NORMAL_CLOSURE), message.get("reason") or "")
            case "websocket.close":
                self._refuse(403, [(b"content-length", b"0")], b"")
            case "websocket.http.response.start":
                self._refusal = message
            case "websocket.http.response.body":
                self._refuse(self._refusal["status"], self._refusal["headers"], message.get("body", b""))

    def _accept(self, subprotocol: str | None) -> None:
        headers = [*self._accepted]
        if subprotocol:
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        self._transport.write(http_head(SWITCHING, headers))
        self._is_open = True
        self._set_timer("ping", PING_INTERVAL_S, self._ping)

    def _refuse(self, status: int, headers: Any, body: bytes) -> None:
        """Answers the handshake as an ordinary request, whose client has nothing more to say."""
        self._transport.write(http_head(status, [*headers, (b"connection", b"close")]) + body)
        self._has_sent_close = True
        self._transport.close()

    def _take_events(self) -> None:
        """Handles what was read, up to the first message that the application waits for.

        Of many frames it leaves the rest for later, and meanwhile the socket unread.
        """
        try:
            for _ in range(FRAMES_AT_ONCE):
                if not self._is_wanting() or (event := self._reader.next_event()) is None:
                    break
                self._handle(event)
            else:
                self._pause_reading()
                self._set_timer("rest", 0.0, self._take_rest)
        except ProtocolViolation as violation:
            self._is_deaf = True
            self._put_disconnect(violation.code, violation.reason)
            self._close(violation.code, violation.reason)
        is_begun = self._reader.is_in_message and not self._has_sent_close
        if is_begun != ("message" in self._timers):
            self._set_timer("message", self._bounds.message_timeout_s if is_begun else None, self._on_slow_message)

    def _take_rest(self) -> None:
        self._set_timer("rest", None)
        if not self._is_deaf:
            self._take_events()
        if self._is_wanting():
            self._resume_reading()

    def _is_wanting(self) -> bool:
        """Whether the application waits, or nothing is left to wait for but the client's close."""
        if self._has_sent_close:
            return not self._transport.is_closing()
        return self._waiter is not None and not self._events

    def _handle(self, event: Received | Fragment | Ping | Pong | Close) -> None:
        match event:
            case Received():
                self._put_message(event)
            case Ping():
                if self._writable.is_set():  # or pongs that nobody reads would pile up
                    self._write(Frame(Opcode.PONG, event.payload))
            case Close():
                self._put_disconnect(event.code, event.reason)
                if not self._has_sent_close:
                    self._write(
                        Frame(Opcode.CLOSE, b"" if event.code == CloseCode.NO_STATUS_RCVD else event.serialize())
                    )
                    self._has_sent_close = True
                self._transport.close()

    def _put_message(self, message: Received) -> None:
        if self._has_sent_close:
            self._bounds.budget.give_back(message.held_bytes)
            return
        kind = "text" if isinstance(message.data, str) else "bytes"
        self._put(
            {
                "type": "websocket.receive",
                kind: message.data,
                "held_bytes": message.held_bytes,
                "received_ns": message.received_ns,
                "refusal": message.refusal,
            }
        )
        self._pause_reading()

    def _put_disconnect(self, code: int, reason: str, *, is_stopping: bool = False) -> None:
        self._put({"type": "websocket.disconnect", "code": code, "reason": reason, "is_stopping": is_stopping})

    def _put(self, event: Message) -> None:
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _write(self, frame: Frame) -> None:
        self._transport.write(frame.serialize(mask=False))

    def _close(self, code: int, reason: str) -> None:
        """Says that the connection ends and waits a little for the client to say so too."""
        if self._has_sent_close or self._is_over:
            return
        self._has_sent_close = True
        if not self._is_open:
            self._transport.close()
            return
        self._write(Frame(Opcode.CLOSE, Close(code, reason).serialize()))
        self._set_timer("close", CLOSE_TIMEOUT_S, self._transport.close)
        if self._is_deaf:
            self._reader.close()
            self._transport.write_eof()  # its answer would not be heard, so the client need not wait for the end
        else:
            self._take_events()
        self._resume_reading()

    def _on_slow_message(self) -> None:
        reason = f"a message did not arrive within {self._bounds.message_timeout_s:g} s; send it without pauses"
        self._put_disconnect(CloseCode.POLICY_VIOLATION, reason)
        self._close(CloseCode.POLICY_VIOLATION, reason)

    def _ping(self) -> None:
        """Asks, or finds that the last question was not answered by anything. Unread, an answer cannot be heard."""
        if self._is_reading and not self._is_heard:
            self._transport.abort()
            return
        self._is_heard = False
        if self._writable.is_set():
            self._write(Frame(Opcode.PING, b""))
        self._set_timer("ping", PING_INTERVAL_S, self._ping)

    def _resume_reading(self) -> None:
        """Unless some of what was read is still to be handled: there may be no room for more."""
        if not self._is_reading and not self._transport.is_closing() and "rest" not in self._timers:
            self._is_reading = True
            self._is_heard = True
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _set_timer(self, name: str, delay_s: float | None, on_time: Callable[[], None] | None = None) -> None:
        """One timer per purpose: starts it, anew where it runs, or stops it."""
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if delay_s is not None and on_time is not None:
            self._timers[name] = self._loop.call_later(delay_s, on_time)

"""Connections on a loop whose timers the test fires, and a transport that keeps what is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from service.http_protocol import LINGER_S, GuardedProtocol
from service.http_transport import ConnectionLimits

BODY_TIMEOUT_S = 3.0
SEND_TIMEOUT_S = 5.0
KEEP_ALIVE_S = 75
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
CHUNKED_POST = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


async def never_runs(scope: object, receive: object, send: object) -> None:
    raise AssertionError("the loop of these tests runs no request")


class Timer:
    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Keeps timers; what the server would run for a request is dropped, so no request is ever answered by itself."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.started: list[Any] = []
        self.soon: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, callback))
        return self.timers[-1]

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        """What the next turn of the loop begins with."""
        due, self.soon = self.soon, []
        for callback in due:
            callback()

    def create_task(self, coroutine: Any, **_: Any) -> asyncio.Future[None]:
        self.started.append(coroutine.cr_frame.f_locals["self"])
        coroutine.close()
        return asyncio.get_running_loop().create_future()

    @property
    def delays_s(self) -> list[float]:
        return [timer.delay_s for timer in self.timers if not timer.is_cancelled]

    def fire(self, delay_s: float) -> None:
        (timer,) = [timer for timer in self.timers if timer.delay_s == delay_s and not timer.is_cancelled]
        self.timers.remove(timer)
        timer.callback()


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.unsent_bytes = 0
        self.is_closed = False
        self.is_aborted = False
        self.has_ended = False
        self.is_read = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.writes.append(data)

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Server:
    """Makes connections as uvicorn does."""

    def __init__(self, max_connections: int = 8, overload_status: int = 503) -> None:
        self.limits = ConnectionLimits(BODY_TIMEOUT_S, SEND_TIMEOUT_S, max_connections, overload_status)
        self.config = uvicorn.Config(
            never_runs, interface="asgi3", log_config=None, timeout_keep_alive=KEEP_ALIVE_S, ws="none"
        )
        self.state = ServerState()

    def connect(self) -> Connection:
        return Connection(self)


class Connection:
    def __init__(self, server: Server) -> None:
        self.loop = Loop()
        self.transport = Transport()
        self.protocol = GuardedProtocol(
            server.limits,
            config=server.config,
            server_state=server.state,
            app_state={},
            _loop=self.loop,  # type: ignore[arg-type]
        )
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.protocol.data_received(part)

    def answer(self) -> None:
        """What uvicorn does when the application has answered the oldest request."""
        cycle = self.loop.started.pop(0)
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def has_ended(self) -> bool:
        """Whether it is closed for writing, and soon for good; what arrives meanwhile is dropped."""
        started = len(self.loop.started)
        self.send(GET, b"\x00")
        assert len(self.loop.started) == started
        assert self.transport.is_read
        if not self.transport.has_ended or self.transport.is_closed:
            return False
        self.loop.fire(LINGER_S)
        return self.transport.is_closed

    @property
    def refusal(self) -> tuple[int, dict[str, str], str]:
        head, _, body = self.transport.written.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert int(headers["content-length"]) == len(body)
        assert headers["content-type"] == "application/json"
        assert headers["connection"] == "close"
        return int(status.split()[1]), headers, json.loads(body)["error"]

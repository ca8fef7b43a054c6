"""How a connection of HTTP becomes a WebSocket, and what does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.api.body import ByteBudget
from service.http_transport import ConnectionLimits
from service.websocket.handshake import accept_headers
from service.websocket.protocol import Bounds, WebSocketProtocol
from tests.doubles.http_connection import BODY_TIMEOUT_S, GET, KEEP_ALIVE_S, SEND_TIMEOUT_S, Connection, Server

KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
OFFER = b"Host: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" + KEY
PATH = b"/v2/models/caf%C3%A9/stream?x=1"
HANDSHAKE = b"GET " + PATH + b" HTTP/1.1\r\n" + OFFER + b"Sec-WebSocket-Protocol: bearer, key\r\n\r\n"
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""To that key; both are the example of RFC 6455, section 1.3."""


class StreamServer(Server):
    """Opens WebSockets, of which `scopes` keeps what the application is given."""

    def __init__(self) -> None:
        super().__init__()
        bounds = Bounds(BODY_TIMEOUT_S, SEND_TIMEOUT_S, 1000, ByteBudget(1000))
        self.limits = ConnectionLimits(BODY_TIMEOUT_S, SEND_TIMEOUT_S, 8, 503, bounds)


class UpgradingConnection(Connection):
    """Keeps the protocol that takes over."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.state = server.state
        self.taken_over: Any = None
        self.scopes: list[dict[str, Any]] = []
        self.transport.set_protocol = self._set_protocol  # type: ignore[attr-defined]
        self.protocol.app = self._app  # type: ignore[assignment]
        self.loop.create_task = self._create_task  # type: ignore[method-assign]

    def _set_protocol(self, protocol: Any) -> None:
        self.taken_over = protocol

    def _create_task(self, coroutine: Any, **_: Any) -> Any:
        self.loop.started.append(coroutine)
        return asyncio.get_running_loop().create_task(coroutine)

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})


@pytest.fixture
async def connection() -> UpgradingConnection:
    return UpgradingConnection(StreamServer())


@pytest.mark.parametrize("size", [1, 600, 1 << 20])
async def test_a_handshake_hands_the_connection_over(connection: UpgradingConnection, size: int) -> None:
    for start in range(0, len(HANDSHAKE), size):
        connection.send(HANDSHAKE[start : start + size])
    assert isinstance(connection.taken_over, WebSocketProtocol)
    assert connection.state.connections == {connection.taken_over}
    assert KEEP_ALIVE_S not in connection.loop.delays_s
    assert BODY_TIMEOUT_S not in connection.loop.delays_s
    await asyncio.gather(*connection.state.tasks)
    (scope,) = connection.scopes
    assert (scope["type"], scope["scheme"], scope["path"]) == ("websocket", "ws", "/v2/models/café/stream")
    assert (scope["raw_path"], scope["query_string"]) == (PATH.split(b"?")[0], b"x=1")
    assert scope["subprotocols"] == ["bearer", "key"]
    assert (b"host", b"x") in scope["headers"]
    assert b"sec-websocket-accept: " + ACCEPT in connection.transport.written


@pytest.mark.parametrize(
    "sent",
    [
        HANDSHAKE.replace(b"GET", b"POST"),
        HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        HANDSHAKE.replace(b"/stream", b"/infer"),
        HANDSHAKE.replace(b"Upgrade: WebSocket", b"Upgrade: h2c"),
        HANDSHAKE.replace(b"Upgrade: WebSocket", b"Upgrade: WebSocket\r\nContent-Length: 0"),
        HANDSHAKE.replace(b"keep-alive, Upgrade", b"keep-alive"),
        HANDSHAKE.replace(b"Version: 13", b"Version: 8"),
        HANDSHAKE.replace(b"bXBsZSBub25jZQ==", b"bXBs"),
        HANDSHAKE.replace(KEY, KEY + KEY),
    ],
)
async def test_what_is_no_handshake_is_served_as_a_request(connection: UpgradingConnection, sent: bytes) -> None:
    connection.send(sent)
    assert connection.taken_over is None
    await asyncio.gather(*connection.state.tasks, return_exceptions=True)
    assert [scope["type"] for scope in connection.scopes] == ["http"]


async def test_a_handshake_behind_a_request_that_waits_is_no_handshake(connection: UpgradingConnection) -> None:
    connection.send(GET + HANDSHAKE)
    assert connection.taken_over is None
    assert len(connection.loop.started) == 1


async def test_who_goes_on_before_the_answer_is_refused(connection: UpgradingConnection) -> None:
    connection.send(HANDSHAKE + b"\x81\x80\0\0\0\0")
    assert connection.taken_over is None
    status, _, error = connection.refusal
    assert (status, error) == (
        400,
        "the request asks for a WebSocket and goes on at once; wait for the answer, then send",
    )


async def test_a_server_without_streams_opens_none() -> None:
    connection = UpgradingConnection(Server())
    connection.send(HANDSHAKE)
    assert connection.taken_over is None
    assert len(connection.loop.started) == 1


def test_the_answer_is_that_of_the_standard() -> None:
    headers = [(name.lower(), text) for name, text in (line.split(b": ") for line in OFFER.split(b"\r\n") if line)]
    accepted = dict(accept_headers("/", headers) or ())
    assert accepted[b"sec-websocket-accept"] == ACCEPT

"""The client's side of one stream, for load: frames are framed and masked before the clock runs, and sent as they are.

A library would mask and copy every frame anew, which on a machine that generator and server share is time that the
server lacks. So a frame's mask, which has to be random for the sake of proxies in between, is chosen once for each.
Blocking; one thread sends while another hears.
"""

from __future__ import annotations

import base64
import secrets
import socket
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import orjson

from loadtest.connection import Endpoint
from loadtest.errors import LoadTestError
from loadtest.metadata import model_path

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
_MASKED = 0x80
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_WORD_BYTES = 8

MAX_ANSWER_BYTES = 64 << 20
"""What is read of a server at once; no answer is larger."""


def binary_frame(payload: bytes) -> bytes:
    """A binary message, masked and complete, as it goes over the wire."""
    return _framed(_BINARY, payload)


class StreamConnection:
    """An open stream, whose header is still to be sent. A context manager.

    Args:
        endpoint: of the server; without TLS.
        model: name of the model.
        headers: added to the handshake.
        timeout_s: seconds that any one read or write may take.

    Raises:
        LoadTestError: there is no server, or it opens no such stream.
    """

    def __init__(self, endpoint: Endpoint, model: str, headers: tuple[tuple[str, str], ...], timeout_s: float) -> None:
        if endpoint.is_tls:
            raise LoadTestError(
                "streams are loaded over http:// alone; load the server itself, not the proxy before it"
            )
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        upgrade = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
        handshake = (*upgrade, ("Sec-WebSocket-Key", key), ("Sec-WebSocket-Version", "13"), *headers)
        head = _without_length(endpoint.frame("GET", f"{model_path(model)}/stream", handshake))
        self._sending = threading.Lock()
        with ExitStack() as stack:
            try:
                opened = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
                self._socket = stack.enter_context(opened)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.sendall(head)
                self._incoming = stack.enter_context(self._socket.makefile("rb"))
                self._check_opened()
            except OSError as error:
                raise LoadTestError(f"no stream at {endpoint.host}:{endpoint.port}: {error}; is it running?") from error
            stack.pop_all()

    def __enter__(self) -> StreamConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._incoming.close()
        self._socket.close()

    def say(self, document: object) -> None:
        """Sends a JSON text message.

        Raises:
            LoadTestError: the server is gone.
        """
        try:
            self.send(_framed(_TEXT, orjson.dumps(document)))
        except OSError as error:
            raise LoadTestError(f"the server ended the stream at once: {error}") from error

    def send(self, frame: bytes) -> None:
        """Sends a frame of `binary_frame`."""
        with self._sending:
            self._socket.sendall(frame)

    def hear(self) -> dict[str, Any]:
        """The next text message, from JSON; pings are answered on the way.

        Raises:
            LoadTestError: the server ended the stream, says nothing any more, or nothing that an answer is made of.
        """
        while True:
            try:
                opcode, payload = self._read()
                if opcode == _PING:
                    self.send(_framed(_PONG, payload))
            except OSError as error:
                raise LoadTestError(f"the server says nothing any more: {error}") from error
            if opcode == _TEXT:
                return _document(payload)
            if opcode == _CLOSE:
                raise LoadTestError(
                    f"the server ended the stream: {payload[2:].decode(errors='replace') or 'no reason'}"
                )

    def _check_opened(self) -> None:
        status = self._incoming.readline().decode("latin-1").strip()
        length = 0
        while (line := self._incoming.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length" and value.strip().isdigit():
                length = min(int(value), MAX_ANSWER_BYTES)
        if " 101 " not in status:
            said = self._incoming.read(length).decode(errors="replace")
            raise LoadTestError(f"the server opens no stream: {status} {said}")

    def _read(self) -> tuple[int, bytes]:
        opcode, length = self._exactly(2)
        if length == _TWO_BYTES:
            length = int.from_bytes(self._exactly(2), "big")
        elif length == _EIGHT_BYTES:
            length = int.from_bytes(self._exactly(8), "big")
        if length > MAX_ANSWER_BYTES:
            raise LoadTestError(f"the server announces a message of {length} bytes, as no stream of Inferlane does")
        return opcode, self._exactly(length)

    def _exactly(self, nbytes: int) -> bytes:
        data = self._incoming.read(nbytes)
        if len(data) < nbytes:
            raise ConnectionError("the connection was closed")
        return data


def _document(payload: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(payload)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        raise LoadTestError(f"the server says {payload[:80]!r}, as no stream of Inferlane does; is --url its address?")
    return said


def _without_length(head: bytes) -> bytes:
    """A handshake announces no body, not even an empty one."""
    return head.replace(b"Content-Length: 0\r\n", b"")


def _framed(opcode: int, payload: bytes) -> bytes:
    mask = secrets.token_bytes(4)
    if len(payload) < _TWO_BYTES:
        length = bytes([_MASKED | len(payload)])
    elif len(payload) < 1 << 16:
        length = bytes([_MASKED | _TWO_BYTES]) + len(payload).to_bytes(2, "big")
    else:
        length = bytes([_MASKED | _EIGHT_BYTES]) + len(payload).to_bytes(8, "big")
    padded = np.frombuffer(payload + bytes(-len(payload) % _WORD_BYTES), np.uint64)
    masked = (padded ^ np.frombuffer(mask * 2, np.uint64)).tobytes()[: len(payload)]
    return bytes([opcode]) + length + mask + masked

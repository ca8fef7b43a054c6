"""Request bodies: read within their bounds of size, time and total memory, and decompressed within the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from starlette.types import Receive

from service.api.compression import decode_body
from service.api.watchdog import Watched
from service.errors import BodyTimeout, ClientGone, InvalidInput, Overloaded, PayloadTooLarge
from service.tensors import HOST_ALIGNMENT_BYTES, IN_PLACE_FROM_BYTES

AnyBody: TypeAlias = bytes | bytearray | memoryview

MAX_INFLATION = 1032
"""The most that deflate can compress, by its format: 258 bytes in two bits."""


class BodyBuffer(Protocol):
    """Memory that a body is read into."""

    @property
    def host_buffer(self) -> NDArray[np.uint8]:
        """uint8 [nbytes], writable."""

    def release(self) -> None:
        """The body needs it no more; called once."""


class BodyMemory(Protocol):
    """Where large bodies are read into. Belongs to the event loop."""

    def take_buffer(self, nbytes: int) -> BodyBuffer:
        """Memory for one body.

        Raises:
            Overloaded: there is no room now.
        """


class _OwnBuffer(NamedTuple):
    host_buffer: NDArray[np.uint8]

    def release(self) -> None:
        """It goes with the last tensor in it."""


class OwnMemory:
    """Memory of this process: the system gives it as it is written to, and no request waits for another one's."""

    def take_buffer(self, nbytes: int) -> BodyBuffer:
        """Memory for one body."""
        return _OwnBuffer(np.empty(nbytes, np.uint8))


class ByteBudget:
    """Bytes that all requests together may hold. Belongs to the event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0

    def check_room(self, nbytes: int) -> None:
        """Refuses what would not fit now, and reserves nothing.

        Raises:
            Overloaded: the requests in progress hold too many bytes already.
        """
        if self.held_bytes + nbytes > self._limit_bytes:
            raise Overloaded(
                f"the requests in progress hold {self.held_bytes} bytes, this one needs {nbytes} more, "
                f"max_in_flight_bytes is {self._limit_bytes}; retry later or send less at once",
                retry_after_s=1.0,
            )

    def take(self, nbytes: int) -> None:
        """Reserves bytes.

        Raises:
            Overloaded: as `check_room`.
        """
        self.check_room(nbytes)
        self.held_bytes += nbytes

    def hold(self, nbytes: int) -> None:
        """Reserves bytes that exist already, such as an answer's; beyond the limit too, which then refuses requests."""
        self.held_bytes += nbytes

    def give_back(self, nbytes: int) -> None:
        """Returns reserved bytes."""
        self.held_bytes -= nbytes


class Body:
    """One request's body. `close` returns what it holds of the budget, whatever happened before.

    Args:
        budget: what all requests together may hold.
        limit_bytes: largest body, compressed or not.
        pool: where bodies are decompressed.
        memory: where large ones are read into.
    """

    __slots__ = ("_budget", "_buffer", "_limit_bytes", "_memory", "_pool", "_reserved_bytes")

    def __init__(self, budget: ByteBudget, limit_bytes: int, pool: Executor, memory: BodyMemory) -> None:
        self._budget = budget
        self._memory = memory
        self._buffer: BodyBuffer | None = None
        self._pool = pool
        self._limit_bytes = limit_bytes
        self._reserved_bytes = 0

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive, watched: Watched) -> AnyBody:
        """The whole body, decompressed.

        Raises:
            PayloadTooLarge: it is larger than allowed; told from Content-Length before anything is read.
            BodyTimeout, ClientGone, InvalidInput, Unsupported, Overloaded: see the messages.
        """
        nbytes = self._announced_bytes(headers.get(b"content-length"))
        self._check_limit(nbytes)
        self._budget.check_room(nbytes)
        watched.is_reading = True
        try:
            body = await self._receive(receive, nbytes, headers.get(b"inference-header-content-length", b""))
        except asyncio.CancelledError:
            if watched.is_too_slow:
                raise BodyTimeout("the request's body did not arrive in time; send it without pauses") from None
            raise
        finally:
            watched.is_reading = False
        encoding = headers.get(b"content-encoding")
        if encoding is None or encoding == b"identity":
            return body
        return await self._decode(encoding, body)

    def close(self) -> None:
        """Returns what this body holds of the budget, and its memory."""
        self._budget.give_back(self._reserved_bytes)
        self._reserved_bytes = 0
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None

    async def _decode(self, encoding: bytes, body: AnyBody) -> AnyBody:
        """Decompresses off the event loop, with room held beforehand for all that the body can become."""
        received_bytes = self._reserved_bytes
        self._reserve(min(self._limit_bytes, len(body) * MAX_INFLATION))
        loop = asyncio.get_running_loop()
        decoded = await loop.run_in_executor(self._pool, decode_body, encoding, body, self._limit_bytes)
        needed_bytes = max(received_bytes, len(decoded))
        self._budget.give_back(self._reserved_bytes - needed_bytes)
        self._reserved_bytes = needed_bytes
        return decoded

    async def _receive(self, receive: Receive, nbytes: int, header_length: bytes) -> AnyBody:
        message = await receive()
        _check_connected(message["type"])
        first: bytes = message.get("body", b"")
        self._reserve(len(first))
        if not message.get("more_body", False):
            return first
        if nbytes >= IN_PLACE_FROM_BYTES:
            return await self._receive_aligned(receive, first, nbytes, header_length)
        body = bytearray(first)
        while True:
            message = await receive()
            _check_connected(message["type"])
            body += message.get("body", b"")
            self._reserve(len(body))
            if not message.get("more_body", False):
                return body

    async def _receive_aligned(self, receive: Receive, first: bytes, nbytes: int, header_length: bytes) -> memoryview:
        """A large body of known length, as it arrives, in memory where its first binary tensor is aligned.

        There a backend can compute on the tensor where it lies; `bytes` would put it behind the header, anywhere.
        A client that only announces a large body holds none of this process's own memory, which the system gives as
        it is written to.
        """
        head_bytes = int(header_length) if header_length.isdigit() and len(header_length) < 10 else 0
        self._buffer = self._memory.take_buffer(nbytes + HOST_ALIGNMENT_BYTES)
        host_buffer = self._buffer.host_buffer
        start = -(host_buffer.ctypes.data + head_bytes) % HOST_ALIGNMENT_BYTES
        body = host_buffer.data[start : start + nbytes]
        end = 0
        part, is_more = first, True
        while True:
            if end + len(part) > nbytes:
                raise InvalidInput(f"the request's body is longer than its Content-Length of {nbytes} bytes")
            body[end : end + len(part)] = part
            end += len(part)
            self._reserve(end)
            if not is_more:
                return body[:end]
            message = await receive()
            _check_connected(message["type"])
            part, is_more = message.get("body", b""), message.get("more_body", False)

    def _reserve(self, nbytes: int) -> None:
        """Holds at least `nbytes` of the budget."""
        self._check_limit(nbytes)
        if nbytes > self._reserved_bytes:
            self._budget.take(nbytes - self._reserved_bytes)
            self._reserved_bytes = nbytes

    def _check_limit(self, nbytes: int) -> None:
        if nbytes > self._limit_bytes:
            raise PayloadTooLarge(
                f"the request's body has {nbytes} bytes or more, max_body_bytes is {self._limit_bytes}; "
                "send fewer rows at once, or binary tensors instead of JSON"
            )

    def _announced_bytes(self, content_length: bytes | None) -> int:
        if content_length is None:
            return 0
        if not content_length.isdigit() or len(content_length) > 19:
            raise InvalidInput(f"Content-Length is {content_length[:40]!r}, expected a number of bytes")
        return int(content_length)


def _check_connected(message_type: str) -> None:
    if message_type == "http.disconnect":
        raise ClientGone("the client closed its connection before its request was complete")

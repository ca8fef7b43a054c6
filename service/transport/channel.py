"""One connection between a front end and the engine: frames out, gathered per turn of the event loop; frames in.

All that is sent while the event loop runs its callbacks leaves in one write, and all frames that a read completes are
handed over together: each side wakes once for many messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from service.transport.wire import Frame, FrameReader, Malformed


class Receiver(Protocol):
    """Whoever a channel is for. On the event loop."""

    def opened(self, channel: Channel) -> None:
        """The channel has begun; called once, before everything else."""

    def received(self, frames: Sequence[Frame]) -> None:
        """Frames have come, in their order; at least one.

        Raises:
            Malformed: one makes no sense; the channel then ends.
        """

    def lost(self, error: Exception | None) -> None:
        """The channel has ended, for good; called once. `error` says why, where this side knows."""


class Forwarding(Protocol):
    """One side of forwarded ASGI calls, for as long as a channel lives. On the event loop."""

    def received(self, payload: memoryview) -> None:
        """The payload of a frame of kind `FORWARD` has come.

        Raises:
            Malformed: it makes no sense; the channel then ends.
        """

    def lost(self) -> None:
        """The channel has ended: no call goes on."""


class Channel(asyncio.Protocol):
    """A channel over a stream socket; made by `loop.create_unix_connection` or `create_unix_server`. On the event loop.

    Args:
        receiver: takes what comes.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._reader = FrameReader()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._can_write = asyncio.Event()
        self._error: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether what is sent may arrive."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance
        self._loop = asyncio.get_running_loop()
        self._can_write.set()
        self._receiver.opened(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            frames = self._reader.feed(data)
            if frames:
                self._receiver.received(frames)
        except Malformed as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._outgoing.clear()
        self._can_write.set()
        self._receiver.lost(self._error or exc)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._can_write.set()

    def send(self, frame: bytes) -> None:
        """Sends a frame after those before it, soon; into the void once the channel has ended."""
        if not self._outgoing and self._loop is not None:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)

    async def drain(self) -> None:
        """Waits until the other side has read enough of what was sent; who sends much awaits it between frames."""
        if self._outgoing:
            self._flush()
        await self._can_write.wait()

    def close(self) -> None:
        """Ends the channel after what was sent has left; idempotent. `Receiver.lost` is told."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        if frames and self.is_open:
            assert self._transport is not None, "an open channel has one"
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _end(self, error: Exception) -> None:
        """Ends the channel at once: nothing that still comes can be understood."""
        self._error = error
        if self._transport is not None:
            self._transport.abort()

"""A front end's connection to the engine: kept up, and everything that comes over it handed to whom it concerns.

When it breaks, every request that the engine had ends at once with NotReady, look-ups say the same, and the engine is
looked for until there is one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.requests import Clock
from service.transport.channel import Channel, Forwarding
from service.transport.mirror import Mirror
from service.transport.objects import Hello, Known, PublishedCatalogue, pack_object, unpack_object
from service.transport.remote_recorder import SEND_INTERVAL_S, RemoteRecorder
from service.transport.remote_requests import RemoteRequests
from service.transport.wire import Frame, Kind, Malformed, pack_frame

LEAST_DELAY_S = 0.02
MOST_DELAY_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTools:
    """What a link hands to whom.

    Attributes:
        requests: those that the engine has.
        mirror: follows what it serves.
        recorder: what is to be sent to it.
        make_forwarding: makes this side of forwarded ASGI calls, for as long as a channel lives.
        clock: monotonic nanoseconds.
    """

    requests: RemoteRequests
    mirror: Mirror
    recorder: RemoteRecorder
    make_forwarding: Callable[[Channel], Forwarding]
    clock: Clock


class Link:
    """A `Receiver` that connects again and again. On the event loop.

    Args:
        path: of the engine's socket.
        hello: presents this front end.
        tools: what it needs.

    Attributes:
        has_caught_up: set while this front end serves by what the engine has told it.
    """

    def __init__(self, path: Path, hello: Hello, tools: LinkTools) -> None:
        self._path = path
        self._hello = hello
        self._tools = tools
        self._channel: Channel | None = None
        self._forwarding: Forwarding | None = None
        self._gone = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._latest: PublishedCatalogue | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._is_stopping = False
        self.has_caught_up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """Whether the engine has welcomed this front end and is there."""
        return self._forwarding is not None

    async def run(self) -> None:
        """Keeps the connection up until it is cancelled; `stop` then ends it."""
        loop = asyncio.get_running_loop()
        while True:
            self._gone.clear()
            try:
                await loop.create_unix_connection(lambda: Channel(self), str(self._path))
            except OSError:
                pass  # the engine is being started
            else:
                await self._gone.wait()
            await asyncio.sleep(retry_delay_s(self._failures))
            self._failures += 1

    async def stop(self) -> None:
        """Sends what was counted and ends the connection; after `run` was cancelled."""
        self._is_stopping = True
        self.send_records()
        if self._channel is not None:
            self._channel.close()
            await self._gone.wait()

    def send_records(self) -> None:
        """Sends what was counted since the last time, if there is an engine."""
        if self._channel is not None and self.is_up and (records := self._tools.recorder.take()) is not None:
            self._channel.send(pack_object(Kind.RECORDS, records))

    def _count(self) -> None:
        self.send_records()
        if self._channel is not None:
            self._channel.send(pack_frame(Kind.COUNTED))

    def opened(self, channel: Channel) -> None:
        """See `Receiver`."""
        self._channel = channel
        channel.send(pack_object(Kind.HELLO, self._hello))

    def received(self, frames: Sequence[Frame]) -> None:
        """See `Receiver`."""
        tools, now_ns = self._tools, self._tools.clock()
        for kind, payload in frames:
            if kind is Kind.DONE:
                tools.requests.done(payload, now_ns)
            elif kind is Kind.FAILED:
                tools.requests.failed(payload)
            elif kind is Kind.FORWARD and self._forwarding is not None:
                self._forwarding.received(payload)
            elif kind is Kind.CATALOGUE:
                self._follow(unpack_object(payload, PublishedCatalogue))
            elif kind is Kind.COUNT:
                self._count()
            elif kind is Kind.WELCOME:
                self._begin()
            else:
                raise Malformed(f"{kind.name} came from the engine")

    def lost(self, error: Exception | None) -> None:
        """See `Receiver`."""
        if self.is_up and not self._is_stopping:
            _log.warning("the engine process is gone (%s); requests are refused until it is back", error or "it ended")
        if self._timer is not None:
            self._timer.cancel()
        if self._following is not None:
            self._following.cancel()
        forwarding, self._forwarding = self._forwarding, None
        self._channel = self._following = self._latest = None
        self.has_caught_up.clear()
        self._tools.mirror.lose()
        self._tools.requests.lose()
        if forwarding is not None:
            forwarding.lost()
        self._gone.set()

    def _begin(self) -> None:
        assert self._channel is not None, "frames come from an open channel"
        self._tools.requests.attach(self._channel)
        self._forwarding = self._tools.make_forwarding(self._channel)
        self._tick()

    def _tick(self) -> None:
        self.send_records()
        self._timer = asyncio.get_running_loop().call_later(SEND_INTERVAL_S, self._tick)

    def _follow(self, published: PublishedCatalogue) -> None:
        """Serves by a catalogue; while one is being followed, of those that come only the last is looked at."""
        self._latest = published
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow_latest())

    async def _follow_latest(self) -> None:
        try:
            while (published := self._latest) is not None:
                self._latest = None
                await self._tools.mirror.follow(published)
                if self._channel is not None:
                    self._channel.send(pack_object(Kind.KNOWN, Known(published.serial)))
                    self.has_caught_up.set()
                    self._failures = 0
        except Exception:
            _log.exception("what the engine published cannot be served")
            if self._channel is not None:
                self._channel.close()  # another attempt may fare better; meanwhile the engine waits for nothing
        self._following = None


def retry_delay_s(failures: int) -> float:
    """How long to wait before the next attempt after so many in a row: twice as long each time, up to a bound."""
    return min(MOST_DELAY_S, LEAST_DELAY_S * 2.0 ** min(failures, 16))

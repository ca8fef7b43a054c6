"""Where front ends come in: every connection becomes a session, and each region belongs to one of them at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from service.requests import Clock
from service.telemetry.recorder import Recorder
from service.transport.channel import Channel, Forwarding
from service.transport.publish import Publisher
from service.transport.session import Session, SessionTools
from service.transport.wire import Malformed

MAX_SETTLE_S = 0.1
"""A front end that takes longer is as late with its answers, and its counts come with the next regular message."""


class Reception:
    """Makes sessions; `connect` is the protocol factory of `loop.create_unix_server`. On the event loop.

    Args:
        regions: the front ends' parts of the shared memory, by index: each uint8, one dimension.
        publisher: knows the models.
        recorder: takes what front ends count.
        make_forwarding: makes the engine's side of forwarded ASGI calls for a channel.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        regions: Sequence[memoryview],
        publisher: Publisher,
        recorder: Recorder,
        make_forwarding: Callable[[Channel], Forwarding],
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._regions = regions
        self._holders: dict[int, Session] = {}
        self._tools = SessionTools(
            publisher=publisher, recorder=recorder, regions=self, make_forwarding=make_forwarding, clock=clock
        )

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those that have a region: their front ends are connected, or something of theirs still runs."""
        return tuple(session for session in self._holders.values() if not session.ended.is_set())

    def connect(self) -> Channel:
        """A front end connects."""
        return Channel(Session(self._tools))

    async def settle(self) -> None:
        """Returns once the figures hold all that front ends have counted before; soon, if one of them does not say."""
        asked = [session.count() for session in self.sessions]
        if asked:
            await asyncio.wait(asked, timeout=MAX_SETTLE_S)

    async def left(self) -> None:
        """Returns once no front end has a session any more."""
        while sessions := self.sessions:
            await sessions[0].ended.wait()

    async def enter(self, session: Session, index: int) -> memoryview:
        """The region of a front end; see `session.Regions`."""
        if not 0 <= index < len(self._regions):
            raise Malformed(f"region {index} is asked for, there are {len(self._regions)}")
        while (holder := self._holders.get(index)) is not None and not holder.ended.is_set():
            await holder.ended.wait()
        self._holders[index] = session
        return self._regions[index]

"""A front end as an ASGI application: it answers inference itself, over the engine's queues, and forwards the rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.body import ByteBudget
from service.api.gate import ApiKeyGate, ApiKeys
from service.inference_front import InferenceFront
from service.pipeline.decode import configure_opencv
from service.pipeline.task import compose_task, create_task
from service.settings import Settings
from service.telemetry.loop_lag import LoopLagSampler
from service.transport.channel import Channel
from service.transport.forward import Forward
from service.transport.link import Link, LinkTools
from service.transport.mirror import Mirror, MirrorTools
from service.transport.mirrored_regions import MirroredRegions
from service.transport.objects import Hello
from service.transport.region import Region
from service.transport.remote_recorder import RemoteRecorder
from service.transport.remote_requests import RemoteRequests

MAX_START_S = 5.0
"""For the engine to tell what it serves, before connections are taken: they wait, instead of being refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a front end stands.

    Attributes:
        index: which of them it is, from 0.
        count: how many there are.
        restarts: how often its process was started again.
        socket_path: where the engine listens.
        host_region: uint8, one dimension: its part of the shared memory.
    """

    index: int
    count: int
    restarts: int
    socket_path: Path
    host_region: NDArray[np.uint8]


class FrontEnd:
    """The application of one front-end process. On its event loop.

    Args:
        settings: of the server.
        place: where it stands.
        budget: bytes that its requests may hold.
    """

    def __init__(self, settings: Settings, place: Place, budget: ByteBudget) -> None:
        region = Region(place.host_region)
        requests = RemoteRequests(region)
        self._recorder = RemoteRecorder(self._send_records, lambda: region.held_bytes)
        pixels, regions = settings.max_image_pixels, MirroredRegions()
        mirror = Mirror(
            MirrorTools(
                make_task=partial(create_task, max_image_pixels=pixels),
                compose_task=partial(compose_task, max_image_pixels=pixels),
                requests=requests,
                recorder=self._recorder,
                regions=regions,
                front_ends=place.count,
                clock=time.monotonic_ns,
            )
        )
        self._front = InferenceFront.create(
            settings,
            mirror,
            self._recorder,
            budget=budget,
            memory=region,
            regions=regions if settings.system_shared_memory_enabled else None,
        )
        self._forward = Forward(overload_status=settings.overload_status)
        tools = LinkTools(
            requests=requests,
            mirror=mirror,
            recorder=self._recorder,
            make_forwarding=self._forwarding,
            clock=time.monotonic_ns,
        )
        self._link = Link(place.socket_path, Hello(place.index, place.restarts), tools)
        self._lag = LoopLagSampler(self._recorder.record_loop_lag)
        self._app = self._guarded(settings, self._front.before(self._forward))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        configure_opencv()
        self._lag.start()
        linking = asyncio.create_task(self._link.run())
        with suppress(asyncio.TimeoutError):  # then it says by itself that there is no engine
            await asyncio.wait_for(self._link.has_caught_up.wait(), MAX_START_S)
        yield
        linking.cancel()
        with suppress(asyncio.CancelledError):
            await linking
        await self._link.stop()
        self._lag.stop()
        self._front.close()

    def _guarded(self, settings: Settings, app: ASGIApp) -> ASGIApp:
        keys = ApiKeys.from_secrets(settings.api_key, settings.admin_api_key)
        return ApiKeyGate(app, keys, self._recorder.record_unattributed) if keys.is_enabled else app

    def _forwarding(self, channel: Channel) -> Forward:
        self._forward.attach(channel)
        return self._forward

    def _send_records(self) -> None:
        self._link.send_records()

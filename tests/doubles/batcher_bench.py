"""A started batcher with real lane threads, around a backend that finishes when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from service.batching.batcher import Batcher
from service.batching.pending import Pending
from service.buckets import Bucket, Unserved
from service.errors import DeviceError
from service.models import ModelSpec
from service.units import NS_PER_MS
from tests.doubles.clock import ManualClock
from tests.doubles.held_backend import HeldBackend
from tests.doubles.recorder import KeepingRecorder
from tests.doubles.requests import linear_costs, make_media_request, make_request


class BatcherBench:
    """A batcher and everything around it; started in its context, drained and closed after it."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        lanes: int = 1,
        depth: int = 1,
        held: bool = True,
        unserved: Mapping[Bucket, Unserved] = MappingProxyType({}),
    ) -> None:
        self.spec = spec
        self.unserved = unserved
        self.lost: list[DeviceError] = []
        self.clock = ManualClock()
        self.recorder = KeepingRecorder()
        self.backend = HeldBackend(spec, clock=self.clock, lane_count=lanes, lane_depth=depth, held=held)
        self.batcher = Batcher(self.backend, on_device_lost=self.lose, clock=self.clock)

    async def __aenter__(self) -> BatcherBench:
        await asyncio.to_thread(self.batcher.pool.grow, self.backend.lane_count)
        self.batcher.start(linear_costs(self.spec, fixed_us=1000, row_us=10), self.recorder, self.unserved)
        return self

    def lose(self, error: DeviceError) -> None:
        self.lost.append(error)
        self.batcher.abandon(error)

    async def __aexit__(self, *_: object) -> None:
        self.backend.let(1000)
        await self.batcher.drain(5)
        await asyncio.to_thread(self.batcher.close)

    def submit(self, rows: int = 1, *, timeout_ms: float = 10_000, **request) -> Pending:
        deadline_ns = self.clock.now_ns + int(timeout_ms * NS_PER_MS)
        return self.batcher.submit(make_request(rows, deadline_ns=deadline_ns, **request))

    def submit_text(self, text: bytes) -> Pending:
        return self.batcher.submit(make_media_request(text))

    async def begun(self, count: int = 1) -> None:
        """Until `count` more batches have begun on their lanes."""
        for _ in range(count):
            assert await asyncio.to_thread(self.backend.begun.acquire, timeout=10)


async def turn() -> None:
    """Lets everything run that is due on the event loop."""
    for _ in range(3):
        await asyncio.sleep(0)

"""An engine and front ends of one server in one process: the sockets, the queues and the memory are real."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.registry import Registry
from service.requests import InferenceRequest, Stamps
from service.shared_regions.registered import RegisteredRegions
from service.telemetry.recorder import NullRecorder, Recorder
from service.tensors import HostArray
from service.transport.channel import Channel
from service.transport.link import Link, LinkTools
from service.transport.mirror import Mirror, MirrorTools
from service.transport.mirrored_regions import MirroredRegions
from service.transport.objects import Hello
from service.transport.publish import Publisher
from service.transport.reception import Reception
from service.transport.region import Region
from service.transport.remote_recorder import RemoteRecorder
from service.transport.remote_requests import RemoteRequests
from tests.doubles.held_repository import until

REGION_BYTES = 1 << 20
FAR_NS = 1 << 62


class KeptForwarding:
    """Keeps what comes."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.payloads: list[bytes] = []
        self.is_lost = False

    def received(self, payload: memoryview) -> None:
        self.payloads.append(bytes(payload))

    def lost(self) -> None:
        self.is_lost = True


class FrontEnd:
    """One front end; `room` is its region, `mirror` what it serves."""

    def __init__(self, bench: TransportBench, index: int) -> None:
        self.index = index
        self.room = Region(bench.memory[index * REGION_BYTES : (index + 1) * REGION_BYTES])
        self.requests = RemoteRequests(self.room)
        self.recorder = RemoteRecorder(self._send_records, lambda: self.room.held_bytes)
        self.regions = MirroredRegions()
        self.mirror = Mirror(
            MirrorTools(
                make_task=bench.make_task,
                compose_task=bench.compose_task,
                requests=self.requests,
                recorder=self.recorder,
                regions=self.regions,
                front_ends=bench.front_ends,
                clock=time.monotonic_ns,
            )
        )
        self.forwardings: list[KeptForwarding] = []
        self.link = Link(
            bench.path,
            Hello(index, restarts=0),
            LinkTools(
                requests=self.requests,
                mirror=self.mirror,
                recorder=self.recorder,
                make_forwarding=self._forwarding,
                clock=time.monotonic_ns,
            ),
        )
        self.running = asyncio.create_task(self.link.run())

    def _forwarding(self, channel: Channel) -> KeptForwarding:
        self.forwardings.append(KeptForwarding(channel))
        return self.forwardings[-1]

    def _send_records(self) -> None:
        self.link.send_records()

    def submit(self, request: InferenceRequest, name: str = "m") -> asyncio.Future[tuple[HostArray, ...]]:
        return self.mirror.get(name).batcher.submit(request).future

    async def serves(self, *names: str) -> FrontEnd:
        """Until it serves models of these names."""
        await until(lambda: self.link.is_up and all(self._serves(name) for name in names))
        return self

    def vanish(self) -> None:
        """Its process is killed: nothing of it is said to anybody."""
        self.running.cancel()
        channel = self.link._channel  # as the system would
        if channel is not None and channel._transport is not None:
            channel._transport.abort()

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.link.stop()

    def _serves(self, name: str) -> bool:
        return self.mirror._catalogue is not None and name in self.mirror._catalogue.models


class TransportBench:
    """The engine's side over a registry, and whatever front ends the test lets in."""

    def __init__(
        self,
        registry: Registry,
        *,
        front_ends: int = 2,
        recorder: Recorder | None = None,
        tasks: Mapping[str, Task] | None = None,
        regions: RegisteredRegions | None = None,
    ) -> None:
        self.registry = registry
        self.front_ends = front_ends
        self.memory = np.zeros(front_ends * REGION_BYTES, np.uint8)
        self.tasks = tasks or {}
        self.folder = Path(tempfile.mkdtemp(prefix="inferlane"))
        self.path = self.folder / "engine"  # a socket's path may not be as long as pytest's are
        self.publisher = Publisher(registry.catalogue, regions=lambda: regions.all if regions else ())
        if regions is not None:
            regions.tell(self.publisher)
        self.forwardings: list[KeptForwarding] = []
        host_regions = [self.memory[index * REGION_BYTES :][:REGION_BYTES].data for index in range(front_ends)]
        self.reception = Reception(host_regions, self.publisher, recorder or NullRecorder(), self._forwarding)
        self._server: asyncio.AbstractServer | None = None
        self._front_ends: list[FrontEnd] = []

    async def __aenter__(self) -> TransportBench:
        self.registry.tell(self.publisher)
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for front_end in self._front_ends:
            await front_end.stop()
        await self.vanish()
        shutil.rmtree(self.folder)

    async def listen(self) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(self.reception.connect, str(self.path))

    async def vanish(self) -> None:
        """The engine's process is killed, as far as front ends can see."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.path.unlink(missing_ok=True)
        for session in self.reception.sessions:
            if session._channel is not None and session._channel._transport is not None:
                session._channel._transport.abort()

    def front_end(self, index: int = 0) -> FrontEnd:
        """A front end comes up."""
        self._front_ends.append(FrontEnd(self, index))
        return self._front_ends[-1]

    def make_task(self, spec: ModelSpec) -> Task | None:
        return self.tasks.get(spec.name)

    def compose_task(self, spec: ModelSpec, members: Mapping[str, ModelSpec]) -> Task:
        return self.tasks[spec.name]

    def _forwarding(self, channel: Channel) -> KeptForwarding:
        self.forwardings.append(KeptForwarding(channel))
        return self.forwardings[-1]


def request_of(*arrays: HostArray, outputs: tuple[int, ...] = (0,), **options: object) -> InferenceRequest:
    """A request of these inputs that never expires, stamped as if it had come now."""
    stamps = Stamps(time.monotonic_ns())
    stamps.read = stamps.parsed = stamps.prepared = stamps.received
    fields = {"rows": len(arrays[0]), "dims": (), "priority": 1, "deadline_ns": FAR_NS, **options}
    return InferenceRequest(
        inputs=arrays, outputs=outputs, nbytes=sum(each.nbytes for each in arrays), stamps=stamps, **fields
    )


def row(fill: float = 1.0, rows: int = 1) -> HostArray:
    """The input of model `m`: so many rows, all of `fill`."""
    return np.full((rows, 4), fill, np.float32)

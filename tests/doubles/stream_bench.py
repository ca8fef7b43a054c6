"""Streams on the bench of inference: the client is the test, and batches finish when it lets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.api.predict import MediaThreads, Predict
from service.api.stream import StreamEndpoint
from service.api.stream_header import StreamLimits
from service.api.stream_session import Streams
from service.errors import Overloaded
from service.pipeline.frames import RawImage
from service.pipeline.steps import Steps
from service.requests import Clock
from tests.doubles.inference_bench import DigitTask, InferenceBench

PATH = "/v2/models/m/stream"
HEADER_TIMEOUT_S = 0.05
MAX_FRAME_BYTES = 4096


class FrameDigitTask(DigitTask):
    """Frames are digits too: a file of them, or the pixels of a raw frame."""

    def frame_steps(self, frame: RawImage, options: Mapping[str, str]) -> Steps:
        return self.steps(frame.pixels.tobytes(), "raw", options)


class StreamClient:
    """A client's side of one stream."""

    def __init__(self, bench: StreamBench, path: str, subprotocols: tuple[str, ...] = ()) -> None:
        self._bench = bench
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.is_gone = False
        self._incoming.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": path, "subprotocols": list(subprotocols)}
        self.task = asyncio.create_task(bench.streams_endpoint(scope, self._incoming.get, self._send))

    async def _send(self, message: Any) -> None:
        await self.may_send.wait()
        if self.is_gone:
            raise OSError("gone")
        self.sent.append(message)
        self._outgoing.put_nowait(message)

    @property
    def unread(self) -> int:
        """Messages that the server has not asked for."""
        return self._incoming.qsize()

    def say(self, header: object) -> None:
        self._put(text=header if isinstance(header, str) else json.dumps(header))

    def frames(self, *frames: bytes) -> None:
        for frame in frames:
            self._put(bytes=memoryview(frame))

    def refused_frame(self) -> None:
        """One that the connection dropped for want of room."""
        self._incoming.put_nowait(
            {
                "type": "websocket.receive",
                "bytes": memoryview(b""),
                "held_bytes": 0,
                "received_ns": self._bench.clock(),
                "refusal": Overloaded("no room"),
            }
        )

    def drop_unread(self) -> None:
        """As a connection does with what its application has left."""
        while self.unread:
            self._bench.budget.give_back(self._incoming.get_nowait().get("held_bytes", 0))

    def leave(self, *, is_stopping: bool = False) -> None:
        self.is_gone = not is_stopping
        self._incoming.put_nowait(
            {"type": "websocket.disconnect", "code": 1001, "reason": "end", "is_stopping": is_stopping}
        )

    async def hears(self) -> Any:
        """The next answer, or the code of the close."""
        message = await asyncio.wait_for(self._outgoing.get(), 10)
        return json.loads(message["text"]) if message["type"] == "websocket.send" else message.get("code")

    async def opened(self, **header: Any) -> StreamClient:
        """After its header was accepted, with nothing heard yet."""
        self.say({"format": "jpeg", **header})
        assert await self.hears() is None
        assert (await self.hears())["ready"] is True
        return self

    def _put(self, **data: Any) -> None:
        (content,) = data.values()
        nbytes = len(content)
        self._bench.budget.take(nbytes)
        self._incoming.put_nowait(
            {
                "type": "websocket.receive",
                **data,
                "held_bytes": nbytes,
                "received_ns": self._bench.clock(),
                "refusal": None,
            }
        )


class StreamBench(InferenceBench):
    """Model `m` takes frames that are four digits; afterwards nothing of any stream is left."""

    clock: Clock

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, max_preparing=1000, **options)
        self.task = self.repository.tasks["m"] = FrameDigitTask()
        self.streams = Streams(
            registry=self.registry,
            recorder=self.recorder,
            predict=Predict(MediaThreads(self.pool, self.finishing, 1000), self.clock),
            budget=self.budget,
            limits=StreamLimits(max_in_flight=8, max_frame_bytes=MAX_FRAME_BYTES, max_image_pixels=1000),
            header_timeout_s=HEADER_TIMEOUT_S,
            overload_status=503,
            clock=self.clock,
        )
        self.streams_endpoint = StreamEndpoint(self.endpoint, self.streams)
        self.clients: list[StreamClient] = []

    async def __aexit__(self, *_: object) -> None:
        self.task.may_prepare.set()
        for backend in self.repository.backends:
            backend.let(1000)
        for client in self.clients:
            client.leave()
        await asyncio.gather(*(client.task for client in self.clients), return_exceptions=True)
        for client in self.clients:
            client.drop_unread()
        assert self.recorder.open_streams == 0
        await super().__aexit__(*_)

    def connect(self, path: str = PATH, subprotocols: tuple[str, ...] = ()) -> StreamClient:
        self.clients.append(StreamClient(self, path, subprotocols))
        return self.clients[-1]

"""A real HTTP/1.1 server on loopback whose every answer a test decides, and one that speaks the inference protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from loadtest.connection import Endpoint


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """Raw bytes to write, the first of them in pieces of `cuts` bytes; `closes` ends the connection after them."""

    raw: bytes
    closes: bool = False
    cuts: Sequence[int] = ()


Handler = Callable[[Request], Awaitable[Reply]]


def reply(status: int, body: bytes = b"", *headers: str) -> Reply:
    lines = [f"HTTP/1.1 {status} X", *headers, f"Content-Length: {len(body)}"]
    return Reply("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


class TinyServer:
    def __init__(self, handler: Handler, port: int = 0) -> None:
        self._handler = handler
        self._port = port
        self.requests: list[Request] = []
        self.connections = 0
        self._arrived = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> TinyServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        # A client that was killed while it connected has left a connection that is still to be accepted: it becomes
        # known within so many turns, and asyncio loses it if the server is closed in between.
        for _ in range(5):
            await asyncio.sleep(0)
        self._server.close()
        for _ in range(5):
            await asyncio.sleep(0)
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def arrived(self, count: int) -> None:
        """Waits until `count` requests have come in altogether."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await self._read(reader)
                async with self._arrived:
                    self.requests.append(request)
                    self._arrived.notify_all()
                answer = await self._handler(request)
                rest = answer.raw
                for cut in answer.cuts:
                    writer.write(rest[:cut])
                    rest = rest[cut:]
                    await asyncio.sleep(0)
                writer.write(rest)
                if answer.closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, path, headers, body)


METADATA = {
    "name": "m",
    "versions": ["1"],
    "platform": "onnxruntime_onnx",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}


async def inference_server(request: Request) -> Reply:
    """Any model: `x` FP32[-1, 3] to `y` FP32[-1, 2], in the wire form of the request."""
    if request.path.endswith("/ready"):
        return reply(200)
    if request.method == "GET":
        return reply(200, json.dumps({**METADATA, "name": request.path.rsplit("/", 1)[1]}).encode())
    length = request.headers.get("inference-header-content-length")
    header = json.loads(request.body[: int(length)] if length else request.body)
    rows = header["inputs"][0]["shape"][0]
    output = {"name": "y", "datatype": "FP32", "shape": [rows, 2]}
    timing = "Server-Timing: queue;dur=0.5, compute;dur=2.0"
    if length is None:
        body = json.dumps({"model_name": "m", "outputs": [{**output, "data": [0.5] * 2 * rows}]}).encode()
        return reply(200, body, "Content-Type: application/json", timing)
    answer = {"model_name": "m", "outputs": [{**output, "parameters": {"binary_data_size": 8 * rows}}]}
    head = json.dumps(answer).encode()
    return reply(200, head + bytes(8 * rows), f"Inference-Header-Content-Length: {len(head)}", timing)


@contextlib.contextmanager
def in_thread(handler: Handler) -> Iterator[str]:
    """The URL of a server on a thread of its own, for code under test that runs its own event loop."""
    started: threading.Event = threading.Event()
    found: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with TinyServer(handler) as server:
            stop = asyncio.Event()
            found.append((f"http://127.0.0.1:{server.endpoint.port}", asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(10)
    url, loop, stop = found[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)

"""An engine and a front end as their processes run them, in this one."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from service.api.body import ByteBudget
from service.front_end import FrontEnd, Place
from service.processes.engine import Engine
from service.processes.orders import SERVES, START_UP_FAILED_STATUS, Orders
from service.settings import Settings
from service.transport.memory import SharedMemory
from tests.doubles import onnx_models
from tests.doubles.held_repository import until
from tests.doubles.running_server import add_model
from tests.doubles.this_process import this_process

__all__ = ["this_process"]

pytestmark = pytest.mark.usefixtures("this_process")

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [[float(each) for each in range(16)]]}


class Processes:
    """What a supervisor has: the memory, the socket's folder, and this side of what the engine says."""

    def __init__(self, memory: SharedMemory, folder: Path, **settings: Any) -> None:
        self.memory = memory
        self.folder = folder
        self.settings = Settings(frontends=1, arena_bytes=memory.nbytes, max_body_bytes=1 << 20, **settings)
        self.own_end, self._its_end = socket.socketpair()
        self.own_end.setblocking(False)

    def engine(self, *, supervisor_pid: int | None = None) -> asyncio.Task[int]:
        orders = Orders(
            region=None,
            settings=self.settings,
            arena_fd=os.dup(self.memory.fd),
            listener_fd=None,
            socket_path=self.folder / "engine",
            url="http://server",
            make_builder=None,
            supervisor_pid=os.getppid() if supervisor_pid is None else supervisor_pid,
            restarts=0,
        )
        self.running = Engine(orders, self._its_end)
        return asyncio.create_task(self.running.run())

    def end(self) -> None:
        """As SIGTERM does."""
        self.running._end.set()

    @asynccontextmanager
    async def front_end(self) -> AsyncIterator[httpx.AsyncClient]:
        place = Place(
            index=0,
            count=1,
            restarts=0,
            socket_path=self.folder / "engine",
            host_region=self.memory.region(0, 1),
        )
        app = FrontEnd(self.settings, place, ByteBudget(self.settings.max_in_flight_bytes))
        incoming: asyncio.Queue[Message] = asyncio.Queue()
        sent: list[str] = []

        async def send(message: Message) -> None:
            sent.append(message["type"])

        incoming.put_nowait({"type": "lifespan.startup"})
        living = asyncio.create_task(app({"type": "lifespan"}, incoming.get, send))
        await until(lambda: sent == ["lifespan.startup.complete"])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            yield client
        incoming.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait_for(living, 30)
        assert sent[1:] == ["lifespan.shutdown.complete"]

    def heard(self) -> bytes:
        """What the engine has said."""
        with suppress(BlockingIOError):
            return self.own_end.recv(16)
        return b""

    def close(self) -> None:
        self.own_end.close()
        self._its_end.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    add_model(tmp_path, "identity", onnx_models.make_identity)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,  # a socket's path is short
        closing(SharedMemory.create(8 << 20)) as memory,
        closing(Processes(memory, Path(folder), repository=tmp_path)) as made,
    ):
        yield made


async def ready(client: httpx.AsyncClient) -> None:
    while (await client.get("/v2/health/ready")).status_code != 200:
        pass


def _so_far(said: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    said.append(capsys.readouterr().err)
    return "".join(said)


async def test_an_engine_serves_a_front_end_until_it_is_told_to_end(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = processes.engine()
    said: list[str] = []
    async with processes.front_end() as client:
        await asyncio.wait_for(ready(client), 60)
        await until(lambda: "is ready at http://server" in _so_far(said, capsys))
        answer = await client.post("/v2/models/identity/infer", json={"inputs": [TENSOR]})
        assert answer.json()["outputs"][0]["data"] == TENSOR["data"][0]
        assert "inferlane_front_ends 1.0" in (await client.get("/metrics")).text
        assert 'inferlane_process_restarts_total{process="engine"} 0.0' in (await client.get("/metrics")).text
        processes.end()
        assert (await client.get("/v2/health/live")).status_code == 200
    assert await asyncio.wait_for(engine, 30) == 0
    assert processes.heard() == SERVES
    assert processes.folder.exists()


async def test_a_front_end_without_an_engine_answers_that(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.front_end.MAX_START_S", 0.01)
    async with processes.front_end() as client:
        for path in ("/v2/models/identity/infer", "/v2/repository/index"):
            refused = await client.post(path, json={"inputs": [TENSOR]})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get("/v2/health/ready")).status_code == 503


async def test_an_engine_whose_supervisor_is_gone_takes_its_folder_along(processes: Processes) -> None:
    engine = processes.engine(supervisor_pid=-1)
    await until((processes.folder / "engine").exists)
    processes.end()
    assert await asyncio.wait_for(engine, 30) == 0
    assert not processes.folder.exists()


async def test_an_engine_takes_the_place_of_one_that_was_killed(processes: Processes) -> None:
    (processes.folder / "engine").touch()
    engine = processes.engine()
    async with processes.front_end() as client:
        await asyncio.wait_for(ready(client), 60)
    processes.end()
    assert await asyncio.wait_for(engine, 30) == 0


async def test_a_model_that_cannot_be_loaded_ends_the_engine_unheard(
    processes: Processes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "identity" / "1" / "model.onnx").write_bytes(b"no model")
    assert await asyncio.wait_for(processes.engine(), 30) == START_UP_FAILED_STATUS
    assert processes.heard() == b""
    assert "identity: failed to load" in capsys.readouterr().err

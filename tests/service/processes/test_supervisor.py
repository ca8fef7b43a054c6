"""A supervisor over small programs in place of its processes, which note what becomes of them."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from service.processes import supervisor as supervisor_module
from service.processes.orders import START_UP_FAILED_STATUS, Orders
from service.processes.supervisor import Supervisor, run_supervisor
from service.server import listen
from service.settings import Settings
from service.transport.memory import SharedMemory
from tests.doubles.held_repository import until

PROGRAM = """
import os, signal, socket, sys
folder, plan, fd, name = sys.argv[1:]
control = socket.socket(fileno=int(fd))
word = dict(part.split("=") for part in plan.split(",")).get(name, "serves")
def note(what):
    file = os.open(folder + "/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{name} {what}\\n".encode())
if word.startswith("unheard"):
    os._exit(3)
control.recv(8)
if word == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if word.startswith("last"):
    control.send(b"!")
if word.startswith(("ends", "last")) and not os.path.exists(folder + "/" + name):
    open(folder + "/" + name, "x").close()
    note("ends")
    os._exit(int(word[4:]))
if word != "stubborn":
    signal.signal(signal.SIGTERM, lambda *_: (note("told"), os._exit(0)))
note("begins")
control.send(b"!")
while True:
    signal.pause()
"""


class Bench:
    """One supervisor; `plan` says what processes do, by name: `serves` unless it says otherwise."""

    def __init__(self, folder: Path, settings: Settings, arena_fd: int) -> None:
        self._folder = folder
        self._arena_fd = arena_fd
        self._settings = settings
        self.said = io.StringIO()
        self.supervisor: Supervisor | None = None
        self.running: asyncio.Task[int] | None = None

    def run(self, plan: str = "none=serves", command: Sequence[str] | None = None) -> asyncio.Task[int]:
        orders = Orders(
            region=None,
            settings=self._settings,
            arena_fd=self._arena_fd,
            listener_fd=None,
            socket_path=self._folder / "socket" / "engine",
            url="",
            make_builder=None,
            supervisor_pid=os.getpid(),
            restarts=0,
        )
        command = command or (sys.executable, "-S", "-c", PROGRAM, str(self._folder), plan)
        self.supervisor = Supervisor(orders, Console(file=self.said), command)
        self.running = asyncio.create_task(self.supervisor.run())
        return self.running

    def notes(self) -> list[str]:
        path = self._folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    async def noted(self, *expected: str) -> None:
        """Until so much was noted, in whatever order."""
        await until(lambda: not Counter(expected) - Counter(self.notes()))

    def stop(self) -> None:
        assert self.supervisor is not None
        self.supervisor._signalled(signal.SIGTERM)

    async def stopped(self) -> int:
        """Its status, after it was told to end."""
        assert self.running is not None
        self.stop()
        return await asyncio.wait_for(self.running, 30)


@pytest.fixture
def arena_fd() -> Iterator[int]:
    with closing(SharedMemory.create(1 << 20)) as memory:
        yield memory.fd


@pytest.fixture
async def bench(tmp_path: Path, arena_fd: int) -> AsyncIterator[Bench]:
    made = Bench(tmp_path, Settings(frontends=2, drain_timeout_s=5), arena_fd)
    yield made
    if made.running is not None and not made.running.done():
        await made.stopped()


ALL = ("engine", "front_end_0", "front_end_1")


async def test_front_ends_are_told_to_end_before_the_engine(bench: Bench) -> None:
    bench.run()
    await bench.noted(*(f"{name} begins" for name in ALL))
    assert await bench.stopped() == 0
    told = [note.split()[0] for note in bench.notes() if note.endswith("told")]
    assert (sorted(told[:2]), told[2:]) == (["front_end_0", "front_end_1"], ["engine"])
    assert bench.said.getvalue() == "stopped\n"


async def test_a_process_that_ends_is_started_again_and_the_others_go_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run("front_end_1=ends7")
    await bench.noted("front_end_1 ends", *(f"{name} begins" for name in ALL))
    assert len(bench.notes()) == 4
    assert "front_end_1 ended with status 7; it is started again in 0.1 s" in caplog.messages
    assert bench.supervisor is not None
    assert [child.orders.restarts for child in bench.supervisor._front_ends] == [0, 1]


async def test_an_engine_that_has_served_is_started_again_however_short_it_lived(bench: Bench) -> None:
    """What it said just before its end is heard."""
    bench.run("engine=last9")
    await bench.noted("engine ends", "engine begins")
    assert await bench.stopped() == 0


@pytest.mark.parametrize(
    ("plan", "status"),
    [(f"engine=ends{START_UP_FAILED_STATUS}", 1), ("engine=ends74", 74), ("engine=ends0", 1), ("engine=unheard", 3)],
)
async def test_an_engine_that_never_served_ends_the_server(bench: Bench, plan: str, status: int) -> None:
    assert await asyncio.wait_for(bench.run(plan), 30) == status
    assert bench.said.getvalue() == ""


async def test_a_process_that_cannot_be_started_is_said(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await asyncio.wait_for(bench.run(command=[str(tmp_path / "nothing")]), 30) == os.EX_OSERR
    assert any(message.startswith("engine cannot be started: ") for message in caplog.messages)


async def test_a_process_that_does_not_end_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "KILL_AFTER_S", -4.9)
    bench.run("front_end_0=stubborn")
    await bench.noted(*(f"{name} begins" for name in ALL))
    assert await bench.stopped() == 0
    assert "front_end_0 told" not in bench.notes()


def test_a_port_that_is_taken_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        assert run_supervisor(Settings(frontends=1, port=port)) == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on 127.0.0.1:{port}: ")
    assert not list(tmp_path.iterdir())

"""A real server in a process of its own, on real ONNX models made for the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.doubles import onnx_models

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


@dataclass
class RunningServer:
    url: str
    repository: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def address(self) -> str:
        """Host and port, as tritonclient wants them."""
        return self.url.removeprefix("http://")

    def client(self) -> httpx.Client:
        """A client without TLS set-up, which takes longer than everything else a test does."""
        return httpx.Client(base_url=self.url, verify=False, timeout=30)

    def async_client(self) -> httpx.AsyncClient:
        """The same for tests that send requests at once."""
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
        return httpx.AsyncClient(base_url=self.url, verify=False, timeout=60, limits=limits)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample on `/metrics`, 0 if there is none."""
        with self.client() as client:
            text = client.get("/metrics").text
        for line in text.splitlines():
            is_it = line.startswith((name + "{", name + " "))
            if is_it and all(f'{key}="{value}"' in line for key, value in labels.items()):
                return float(line.split()[-1])
        return 0.0

    def stop(self) -> int:
        """Asks it to stop and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)


StartServer = Callable[..., RunningServer]


def add_model(repository: Path, name: str, make: Callable[[Path], Path], card: str = "", version: str = "1") -> None:
    folder = repository / name / version
    folder.mkdir(parents=True, exist_ok=True)
    make(folder / "model.onnx")
    (repository / name / "model.toml").write_text(card)


def make_repository(repository: Path) -> Path:
    add_model(repository, "simple", onnx_models.make_simple, "[batching]\nmax_batch_size = 8\n")
    add_model(repository, "identity", onnx_models.make_identity, "[batching]\nmax_batch_size = 8\n")
    add_model(repository, "words", onnx_models.make_string, "[batching]\nmax_batch_size = 8\n")
    add_model(
        repository,
        "classifier",
        onnx_models.make_cnn,
        'labels = ["zero","one","two","three","four","five","six","seven","eight","nine"]\n'
        "[batching]\nmax_batch_size = 8\n",
    )
    add_model(
        repository,
        "encoder",
        onnx_models.make_sequence,
        "[batching]\nmax_batch_size = 4\n[buckets]\nsequence = [8, 16, 32]\n",
    )
    return repository


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch_server(repository: Path, log: Path, *, module: str = "service.cli", **settings: object) -> RunningServer:
    """Starts a server with settings as keyword arguments; returns before it is ready. Whoever calls it must end it.

    `module` is what runs: the server's command line, or a stand-in that takes the same words.
    On a machine with a GPU it builds no plans unless it is told to: that would take minutes for each model.
    """
    port = free_port()
    settings = {"build_plans_enabled": False, **settings}
    environment = {**os.environ, **{f"INFERLANE_{name.upper()}": str(value) for name, value in settings.items()}}
    command = [sys.executable, "-m", module, "serve", "--repository", str(repository), "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    return RunningServer(f"http://127.0.0.1:{port}", repository, process, log)


def end_server(server: RunningServer) -> None:
    """Ends a server that may still run, by force if it must be."""
    if server.process.poll() is None:
        server.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(STOP_TIMEOUT_S)
        server.process.kill()


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts servers with settings as keyword arguments, and ends those that still run."""
    started: list[RunningServer] = []

    def start(repository: Path, *, wait: bool = True, **settings: object) -> RunningServer:
        server = launch_server(repository, tmp_path_factory.mktemp("server") / "log", **settings)
        started.append(server)
        if wait:
            wait_ready(server)
        return server

    yield start
    for server in started:
        end_server(server)


def wait_ready(server: RunningServer, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Blocks until the server is ready; fails with its log where it ended instead."""

    def is_ready() -> bool:
        assert server.process.poll() is None, server.log.read_text()
        with suppress(httpx.TransportError), server.client() as client:
            return client.get("/v2/health/ready").status_code == 200
        return False

    wait_for(is_ready, timeout_s)


def wait_for(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    """Blocks until `condition` holds; for events in another process, which can only be polled."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not in {timeout_s} s"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """One server with every test model, shared by tests that do not change it."""
    return start_server(make_repository(tmp_path_factory.mktemp("repository")))

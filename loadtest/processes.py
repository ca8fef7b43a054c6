"""Servers as child processes, for as long as a measurement takes; only processes started here are ever ended."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.connection import Endpoint
from loadtest.errors import LoadTestError

HOST = "127.0.0.1"
READY_PATH = "/v2/health/ready"
_POLL_S = 0.05
_STOP_TIMEOUT_S = 15.0
_LOG_TAIL_BYTES = 2000


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs: where it listens, and the id of the process that was started."""

    endpoint: Endpoint
    pid: int


@contextlib.contextmanager
def serving(command: Sequence[str], log: Path, ready_timeout_s: float = 120.0) -> Iterator[Endpoint]:
    """As `server_process`, for those who need no more than where it listens."""
    with server_process(command, log, ready_timeout_s) as server:
        yield server.endpoint


@contextlib.contextmanager
def server_process(command: Sequence[str], log: Path, ready_timeout_s: float = 120.0) -> Iterator[ServerProcess]:
    """Runs `command --port PORT` until the block ends; yields once it is ready.

    Args:
        command: program and arguments, the port apart.
        log: file that takes what the server prints.
        ready_timeout_s: seconds within which `GET /v2/health/ready` must answer 200.

    Raises:
        LoadTestError: it cannot be started, ends early, or is not ready in time; the message ends with its log.
    """
    port = free_port()
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [*command, "--port", str(port)], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise LoadTestError(f"{command[0]!r} cannot be started: {error}; is it installed here?") from error
    try:
        _wait_ready(process, port, log, ready_timeout_s)
        yield ServerProcess(Endpoint(HOST, port), process.pid)
    finally:
        _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not _is_ready(port):
        if process.poll() is not None:
            raise LoadTestError(f"the server ended with status {process.returncode} before it was ready: {_tail(log)}")
        if time.monotonic() > deadline_s:
            raise LoadTestError(f"the server was not ready within {timeout_s:g} s: {_tail(log)}")
        time.sleep(_POLL_S)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    try:
        connection.request("GET", READY_PATH)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip() or "it printed nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

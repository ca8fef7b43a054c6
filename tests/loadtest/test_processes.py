from __future__ import annotations

import http.client
import socket
import sys
from pathlib import Path

import pytest

from loadtest.errors import LoadTestError
from loadtest.processes import HOST, free_port, server_process, serving
from loadtest.usage import process_times


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server((HOST, free_port())):
        pass


@pytest.mark.e2e
def test_a_server_runs_as_long_as_its_block(tmp_path: Path) -> None:
    with server_process([sys.executable, "-m", "loadtest.echo"], tmp_path / "log") as server:
        endpoint = server.endpoint
        assert process_times([server.pid])[server.pid].name == "loadtest.echo"
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=10)
        connection.request("POST", "/any", body=b"bytes")
        assert connection.getresponse().read() == b"bytes"
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((endpoint.host, endpoint.port), timeout=1)


def test_a_server_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)"]
    with (
        pytest.raises(LoadTestError, match="status 3 before it was ready: no such model"),
        serving(command, tmp_path / "l"),
    ):
        pytest.fail("it was never ready")


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(LoadTestError, match=r"not ready within 0\.1 s"), serving(command, tmp_path / "log", 0.1):
        pytest.fail("it was never ready")


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(LoadTestError, match="'no-such-program' cannot be started"),
        serving(["no-such-program"], tmp_path / "l"),
    ):
        pytest.fail("it was never started")

"""Clients that hold connections without using them, beside ones that do."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, wait_for

pytestmark = pytest.mark.e2e

BODY_TIMEOUT_S = 0.5
MAX_CONNECTIONS = 16
WAIT_S = 30
PARTIAL_HEAD = b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nX-Slow: "
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def strict_server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    repository: Path = tmp_path_factory.mktemp("strict")
    add_model(repository, "identity", onnx_models.make_identity)
    return start_server(repository, body_timeout_s=BODY_TIMEOUT_S, max_connections=MAX_CONNECTIONS)


@pytest.fixture
def connections(strict_server: RunningServer) -> Iterator[ExitStack]:
    """Closes what a test opened, and waits until the server has room again."""
    with ExitStack() as opened:
        yield opened
    wait_for(lambda: answers(strict_server))


def connect(server: RunningServer) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def answers(server: RunningServer) -> bool:
    with closing(connect(server)) as connection:
        connection.sendall(LIVE)
        return connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def read_to_end(connection: socket.socket) -> tuple[int, str]:
    """Status and error of an answer after which the server closes the connection."""
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def test_heads_that_trickle_are_cut_off_while_others_are_served(
    strict_server: RunningServer, connections: ExitStack
) -> None:
    slow = [connections.enter_context(closing(connect(strict_server))) for _ in range(8)]
    for connection in slow:
        connection.sendall(PARTIAL_HEAD)
    began_s = time.monotonic()
    assert answers(strict_server)
    for connection in slow:
        status, error = read_to_end(connection)
        assert status == 408
        assert "head was not complete 0.5 seconds after its first byte" in error
    assert time.monotonic() - began_s >= BODY_TIMEOUT_S / 2


def test_connections_beyond_the_bound_are_refused_in_words(
    strict_server: RunningServer, connections: ExitStack
) -> None:
    for _ in range(MAX_CONNECTIONS):
        kept = connections.enter_context(closing(connect(strict_server)))
        kept.sendall(LIVE)
        assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
    extra = connections.enter_context(closing(connect(strict_server)))
    extra.sendall(LIVE)
    status, error = read_to_end(extra)
    assert status == 503
    assert f"the server has its {MAX_CONNECTIONS} connections" in error
    kept.sendall(LIVE)
    assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_large_request_on_a_connection_too_many_still_reads_its_refusal(
    strict_server: RunningServer, connections: ExitStack
) -> None:
    """More than the sockets' buffers hold: closed at once, the client would see a reset instead."""
    for _ in range(MAX_CONNECTIONS):
        kept = connections.enter_context(closing(connect(strict_server)))
        kept.sendall(LIVE)
        assert kept.recv(65536)
    extra = connections.enter_context(closing(connect(strict_server)))
    body = bytes(8 << 20)
    extra.sendall(b"POST /v2/models/identity/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert read_to_end(extra)[0] == 503

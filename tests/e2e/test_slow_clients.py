"""Clients that hold connections without using them, beside ones that do."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, wait_for

pytestmark = pytest.mark.e2e

BODY_TIMEOUT_S = 0.5
SEND_TIMEOUT_S = 0.5
MAX_CONNECTIONS = 16
WAIT_S = 30
PARTIAL_HEAD = b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nX-Slow: "
SLOW_BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}).encode()
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def strict_server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    repository: Path = tmp_path_factory.mktemp("strict")
    add_model(repository, "identity", onnx_models.make_identity)
    return start_server(repository, body_timeout_s=BODY_TIMEOUT_S, max_connections=MAX_CONNECTIONS)


@pytest.fixture(scope="module")
def patient_server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Has its defaults, except towards clients that do not read."""
    repository: Path = tmp_path_factory.mktemp("patient")
    add_model(repository, "identity", onnx_models.make_identity)
    add_model(repository, "wide", onnx_models.make_identity_any_width)
    add_model(repository, "slow", onnx_models.make_slow)
    return start_server(repository, send_timeout_s=SEND_TIMEOUT_S)


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


def infer_request(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def identity_request(*headers: str) -> bytes:
    tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.5] * 16}
    return infer_request("/v2/models/identity/infer", json.dumps({"inputs": [tensor]}).encode(), *headers)


def wide_request(width: int) -> bytes:
    """Answered with as many bytes as it has."""
    tensor = {"name": "x", "shape": [1, width], "datatype": "FP32", "parameters": {"binary_data_size": 4 * width}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    length = f"Inference-Header-Content-Length: {len(header)}"
    return infer_request("/v2/models/wide/infer", header + bytes(4 * width), length)


def is_established(server_port: int, client_port: int) -> bool:
    """Whether the server holds its end of a connection open, as the kernel's table says: the client may not know."""
    ends = f":{server_port:04X} 0100007F:{client_port:04X} 01 "
    return ends in Path("/proc/net/tcp").read_text()


def resident_bytes(server: RunningServer) -> int:
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of one answer, where no other has been asked for yet."""
    with connection.makefile("rb") as stream:
        return next_answer(stream)


def next_answer(stream: BinaryIO) -> tuple[int, bytes]:
    status = int(stream.readline().split()[1])
    headers = dict(line.rstrip().lower().split(b": ", 1) for line in iter(stream.readline, b"\r\n"))
    return status, stream.read(int(headers[b"content-length"]))


@pytest.mark.parametrize(
    ("path", "nbytes", "status"),
    [
        ("/v2/models/identity/infer", 80 << 20, 413),
        ("/v2/models/absent/infer", 10 << 20, 404),
        ("/absent", 10 << 20, 404),
        ("/v2/repository/models/identity/load", 10 << 20, 413),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_a_client_that_sends_before_it_reads_reads_the_early_answer(
    patient_server: RunningServer, path: str, nbytes: int, status: int, keep: bool
) -> None:
    """More than the sockets' buffers hold. Kept, the connection serves the next request."""
    with closing(connect(patient_server)) as connection:
        connection.sendall(infer_request(path, bytes(nbytes), *([] if keep else ["Connection: close"])))
        if keep:
            assert read_answer(connection)[0] == status
            connection.sendall(identity_request())
            assert read_answer(connection)[0] == 200
        else:
            assert read_to_end(connection)[0] == status


def test_the_rest_of_an_answered_request_has_its_time(strict_server: RunningServer, connections: ExitStack) -> None:
    connection = connections.enter_context(closing(connect(strict_server)))
    connection.sendall(infer_request("/absent", bytes(1000))[:-1])
    began_s = time.monotonic()
    assert read_to_end(connection)[0] == 404
    assert time.monotonic() - began_s >= BODY_TIMEOUT_S / 2


def test_pipelined_requests_are_served_in_their_order(patient_server: RunningServer) -> None:
    with closing(connect(patient_server)) as connection, connection.makefile("rb") as stream:
        connection.sendall((identity_request() + infer_request("/absent", b"{}")) * 50)
        assert [next_answer(stream)[0] for _ in range(100)] == [200, 404] * 50


def test_pipelined_requests_do_not_pile_up(patient_server: RunningServer) -> None:
    """The server stops reading while one waits: a client that only sends cannot send for long."""
    before_bytes = resident_bytes(patient_server)
    with closing(connect(patient_server)) as connection:
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall(infer_request("/v2/models/slow/infer", SLOW_BODY) * 400_000)
    assert resident_bytes(patient_server) - before_bytes < 64 << 20


def test_an_answer_that_nobody_takes_is_dropped(patient_server: RunningServer) -> None:
    """Its memory is the server's until then."""
    host, port = patient_server.address.split(":")
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(WAIT_S)
        connection.connect((host, int(port)))
        connection.sendall(wide_request(4 << 20))
        client_port = connection.getsockname()[1]
        assert is_established(int(port), client_port)
        wait_for(lambda: not is_established(int(port), client_port))
        assert len(read_answer(connection)[1]) < 16 << 20


@pytest.mark.parametrize("request_bytes", [LIVE, identity_request(), infer_request("/v2/models/slow/infer", SLOW_BODY)])
def test_a_client_that_has_ended_its_side_reads_its_answer(patient_server: RunningServer, request_bytes: bytes) -> None:
    with closing(connect(patient_server)) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_passed_over(patient_server: RunningServer, protocol: str) -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMAAABkAAQAAP__")
    with closing(connect(patient_server)) as connection:
        for _ in range(2):
            connection.sendall(identity_request(*offer))
            status, body = read_answer(connection)
            assert status == 200
            assert json.loads(body)["outputs"][0]["data"] == [1.5] * 16

"""The process around the application: its socket, its progress bars, its last word and exit status."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from service import server as server_module
from service.api.body import ByteBudget
from service.app import OnStarted, create_app
from service.errors import ServiceError
from service.http_protocol import GuardedProtocol
from service.http_transport import ConnectionLimits
from service.server import (
    FORCED_EXIT_STATUS,
    RESERVED_FILES,
    SWITCH_INTERVAL_S,
    _affordable_connections,
    listen,
    raised_file_limit,
    run_server,
    say,
    server_config,
    server_url,
)
from service.settings import Settings
from service.websocket.protocol import Bounds
from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, start_server, wait_for
from tests.doubles.this_process import this_process

__all__ = ["start_server", "this_process"]

WAIT_S = 60
MANY_FILES = 1 << 20


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("fe80::1", "http://[fe80::1]:80"),
        ("models.local", "http://models.local:80"),
    ],
)
def test_url(host: str, url: str) -> None:
    assert server_url(host, 80) == url


@pytest.mark.parametrize("text", ["http://[fe80::1]:80", "pip install 'inferlane[cpu]'", "[/b]", "x" * 300])
def test_what_is_said_is_never_taken_for_markup_or_broken(text: str) -> None:
    console = Console(file=io.StringIO(), width=80)
    say(console, ("m: ", "red"), text)
    assert console.file.getvalue() == f"m: {text}\n"  # type: ignore[attr-defined]


def test_port_0_takes_a_free_one() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0
        with socket.create_connection(listener.getsockname(), timeout=10):
            pass


def test_ipv6() -> None:
    try:
        listener = listen("::1", 0)
    except OSError as error:
        pytest.skip(f"needs IPv6: {error.strerror}")
    with listener:
        assert listener.family is socket.AF_INET6


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", None), ("192.0.2.1", 0)])
def test_a_place_where_nobody_can_listen(host: str, port: int | None) -> None:
    """The port of another server, an address of another machine; no socket is left behind."""
    with listen("127.0.0.1", 0) as other, pytest.raises(OSError, match=r"\S"):
        listen(host, other.getsockname()[1] if port is None else port)


@pytest.mark.parametrize(("drain_timeout_s", "uvicorn_s"), [(0, 0), (0.2, 1), (30, 30), (30.5, 31)])
def test_uvicorn_waits_as_long_as_the_settings_say(drain_timeout_s: float, uvicorn_s: int) -> None:
    """None would be for ever."""
    made = server_config(None, Settings(drain_timeout_s=drain_timeout_s), MANY_FILES, ByteBudget(1))
    assert made.timeout_graceful_shutdown == uvicorn_s


def test_connections_are_bounded_as_the_settings_say() -> None:
    settings = Settings(body_timeout_s=2, send_timeout_s=3, max_connections=5, overload_status=429, max_body_bytes=1024)
    budget = ByteBudget(1)
    made = server_config(None, settings, MANY_FILES, budget).http
    assert isinstance(made, partial)
    assert made.func is GuardedProtocol
    assert made.args == (ConnectionLimits(2, 3, 5, 429, Bounds(2, 3, 1024, budget)),)


@pytest.mark.parametrize(
    ("max_connections", "max_files", "affordable"),
    [
        (4096, 1 << 20, 4096),
        (4096, resource.RLIM_INFINITY, 4096),
        (4096, 4096 + RESERVED_FILES, 4096),
        (4096, 1024, 1024 - RESERVED_FILES),
        (4096, 10, 1),
    ],
)
def test_no_more_connections_than_open_files_allow(
    caplog: pytest.LogCaptureFixture, max_connections: int, max_files: int, affordable: int
) -> None:
    assert _affordable_connections(max_connections, max_files, RESERVED_FILES) == affordable
    warnings = [] if affordable == max_connections else [f"the process may open {max_files} files: {affordable} conn"]
    assert len(caplog.messages) == len(warnings)
    assert all(said in message for said, message in zip(warnings, caplog.messages, strict=True))


@pytest.mark.parametrize(("is_enabled", "left"), [(True, 600), (False, 700)])
def test_registered_regions_take_files_that_connections_cannot_have(is_enabled: bool, left: int) -> None:
    settings = Settings(system_shared_memory_enabled=is_enabled, max_shared_regions=100)
    config = server_config(object(), settings, RESERVED_FILES + 700, ByteBudget(1 << 30))
    assert isinstance(config.http, partial)
    assert config.http.args[0].max_connections == left


@pytest.mark.usefixtures("this_process")
def test_the_process_opens_as_many_files_as_it_is_allowed_to() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    assert raised_file_limit() == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.usefixtures("this_process")
def test_it_serves_until_it_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    intervals_s: list[float] = []

    def stop_when_started(settings: Settings, *, on_started: OnStarted, **others: Any) -> Any:
        def stop(failures: Mapping[str, ServiceError]) -> None:
            on_started(failures)
            intervals_s.append(sys.getswitchinterval())
            signal.raise_signal(signal.SIGTERM)

        return create_app(settings, on_started=stop, **others)

    monkeypatch.setattr(server_module, "create_app", stop_when_started)
    add_model(tmp_path, "identity", onnx_models.make_identity)
    assert run_server(Settings(repository=tmp_path, port=0)) == 0
    said = capsys.readouterr().err
    assert re.search(r"is ready at http://127\.0\.0\.1:\d+ \(API: http://127\.0\.0\.1:\d+/docs\)\n", said)
    assert said.endswith("stopped\n")
    assert intervals_s == [SWITCH_INTERVAL_S]


@pytest.mark.usefixtures("this_process")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"repository": Path("/no/such/folder")}, "repository: the repository '/no/such/folder' cannot be read"),
        ({"models": ("absent",)}, "absent: model 'absent' is not in"),
    ],
)
def test_what_cannot_be_loaded_ends_it_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], said: str
) -> None:
    assert run_server(Settings(**{"repository": tmp_path, "port": 0, **settings})) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert "is ready" not in shown


@pytest.mark.usefixtures("this_process")
def test_a_port_of_another_ends_it_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "create_app", None)
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        assert run_server(Settings(repository=tmp_path, port=port)) == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use; ")


def serve(*options: str, code: str = "", **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs the server until it ends by itself."""
    environment = {**os.environ, **{f"INFERLANE_{name.upper()}": str(value) for name, value in settings.items()}}
    run = f"import sys; sys.argv = ['inferlane', 'serve', *{options!r}]\n{code}\nfrom service.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, env=environment, timeout=WAIT_S, check=False
    )


@pytest.mark.e2e
def test_a_port_that_is_taken_is_one_message_and_exit_status_1(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        ended = serve("--repository", str(tmp_path), "--port", str(port))
    assert ended.returncode == 1
    assert ended.stderr == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --host or --port\n"
    )


@pytest.mark.e2e
def test_a_repository_that_is_not_there_ends_the_server(tmp_path: Path) -> None:
    ended = serve("--repository", str(tmp_path / "absent"), "--port", "0")
    assert ended.returncode == 1
    assert f"the repository '{tmp_path / 'absent'}' cannot be read" in ended.stderr
    assert "is ready" not in ended.stderr


@pytest.mark.e2e
def test_a_model_that_is_not_there_ends_the_server(tmp_path: Path) -> None:
    ended = serve("--repository", str(tmp_path), "--port", "0", models='["absent"]')
    assert ended.returncode == 1
    assert "absent: model 'absent' is not in" in ended.stderr


@pytest.mark.e2e
def test_a_bad_setting_is_one_message_and_exit_status_1() -> None:
    ended = serve(port="http")
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: INFERLANE_PORT: got 'http'")
    assert "Traceback" not in ended.stderr


@pytest.mark.e2e
def test_an_application_that_cannot_begin_is_no_success(tmp_path: Path) -> None:
    break_start = "import service.app\ndef fail(): raise RuntimeError('no OpenCV')\nservice.app.configure_opencv = fail"
    ended = serve("--repository", str(tmp_path), "--port", "0", code=break_start)
    assert ended.returncode != 0
    assert "no OpenCV" in ended.stderr


@pytest.mark.e2e
def test_without_exit_on_error_the_good_models_serve(start_server: StartServer, tmp_path: Path) -> None:
    add_model(tmp_path, "good", onnx_models.make_identity)
    add_model(tmp_path, "bad", lambda path: path.write_bytes(b"no model"))  # type: ignore[arg-type,return-value]
    server = start_server(tmp_path, exit_on_error="false")
    wait_for(lambda: "is ready at" in server.log.read_text())
    log = server.log.read_text()
    assert "bad: failed to load 'bad'" in log
    assert f"is ready at {server.url} (API: {server.url}/docs)" in log
    with server.client() as client:
        states = {entry["name"]: entry["state"] for entry in client.post("/v2/repository/index").json()}
    assert states == {"good": "READY", "bad": "UNAVAILABLE"}
    assert server.stop() == 0
    assert server.log.read_text().endswith("stopped\n")


def send_slow_request(server: RunningServer) -> socket.socket:
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
    body = json.dumps({"inputs": [tensor]}).encode()
    host, port = server.address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def read_answer(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.e2e
def test_a_drain_timeout_of_0_ends_waiting_requests_at_once_with_an_answer(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Requests of which each takes long, one at a time: without the bound the drain takes all of them."""

    def make_slow(path: Path) -> Path:
        return onnx_models.make_slow(path, side=1400, products=16)

    card = "[batching]\nmax_batch_size = 1\ndefault_timeout_ms = 600000\n[lanes]\nthreads_per_lane = 1\n"
    add_model(tmp_path, "slow", make_slow, card)
    server = start_server(tmp_path, drain_timeout_s=0)
    connections = [send_slow_request(server) for _ in range(8)]
    wait_for(lambda: server.metric("inferlane_in_flight_requests", model="slow") >= 4)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(WAIT_S) == 0
    refused = [answer for answer in map(read_answer, connections) if answer.startswith(b"HTTP/1.1 503 ")]
    assert len(refused) >= 3
    assert all(b"the server stopped before this request was answered" in answer for answer in refused)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.e2e
def test_a_second_interrupt_ends_it_at_once_and_says_so(start_server: StartServer, tmp_path: Path) -> None:
    """With lanes that run, whose end a drain would wait for."""

    def make_slow(path: Path) -> Path:
        return onnx_models.make_slow(path, side=1400, products=16)

    # Of a short time to wait admission would refuse half of the requests on a busy machine.
    card = "[batching]\nmax_batch_size = 1\ndefault_timeout_ms = 600000\n[lanes]\nthreads_per_lane = 1\n"
    add_model(tmp_path, "slow", make_slow, card)
    server = start_server(tmp_path)
    connections = [send_slow_request(server) for _ in range(8)]
    wait_for(lambda: server.metric("inferlane_in_flight_requests", model="slow") >= 4)
    server.process.send_signal(signal.SIGINT)
    while server.process.poll() is None:  # two signals that are pending at once arrive as one
        server.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(0.05)
    assert server.process.wait(WAIT_S) == FORCED_EXIT_STATUS == 130
    said = server.log.read_text()
    assert said.endswith("stopped at once; requests in progress were dropped\n")
    assert "Traceback" not in said
    for connection in connections:
        connection.close()

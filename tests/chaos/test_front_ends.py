"""Faults on purpose against a server of several processes: what dies is back, and takes nobody along."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.chaos.test_chaos import GOOD, MAKE_SLOW, PATIENT, SLOW, SLOW_TENSOR, good_request, post_good
from tests.doubles.running_server import RunningServer, StartServer, add_model, make_repository, wait_for, wait_ready

pytestmark = [pytest.mark.chaos, pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for processes")]

FRONT_ENDS = 2


def child_pids(server: RunningServer) -> list[int]:
    pid = server.process.pid
    return sorted(int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def children(server: RunningServer) -> tuple[int, list[int]]:
    """The engine and the front ends, which their command lines name last."""
    pids = {Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode(): pid for pid in child_pids(server)}
    assert len(pids) == 1 + FRONT_ENDS, pids
    return pids["engine"], [pids[f"front_end_{index}"] for index in range(FRONT_ENDS)]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only its status, which nobody has asked for yet."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def is_ready(server: RunningServer) -> bool:
    """Whether a connection made now is answered that the server is ready."""
    with suppress(httpx.TransportError), server.client() as client:
        return client.get("/v2/health/ready").status_code == 200
    return False


def is_refused(host: str, port: int) -> bool:
    """Whether no front end takes connections any more."""
    try:
        socket.create_connection((host, port), timeout=30).close()
    except ConnectionError:
        return True
    return False


def each_front_end(server: RunningServer, metric: str) -> list[float]:
    """A metric of every front end, in their order."""
    return [server.metric(metric, process=f"front_end_{index}") for index in range(FRONT_ENDS)]


def all_are_back(server: RunningServer, gone: int) -> Callable[[], bool]:
    def check() -> bool:
        pids = child_pids(server)
        return len(pids) == 1 + FRONT_ENDS and gone not in pids and is_ready(server)

    return check


class Load:
    """Clients that send good requests until they are told to stop, on connections of their own."""

    def __init__(self, server: RunningServer, clients: int = 8) -> None:
        self._server = server
        self._clients = clients
        self._stop = asyncio.Event()
        self.statuses: list[int] = []
        self.cut_off = 0

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._client(index)) for index in range(self._clients)]
        await self.more(50)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def more(self, answers: int) -> None:
        """Until so many more were answered well."""
        wanted = self.statuses.count(200) + answers
        await asyncio.to_thread(wait_for, lambda: self.statuses.count(200) >= wanted)

    async def _client(self, seed: int) -> None:
        while not self._stop.is_set():
            async with self._server.async_client() as client:
                with suppress(httpx.TransportError):
                    while not self._stop.is_set():
                        self.cut_off += 1
                        response = await post_good(client, seed)
                        self.cut_off -= 1
                        self.statuses.append(response.status_code)
                        seed += self._clients


@pytest.fixture
def apart(start_server: StartServer, tmp_path: Path) -> RunningServer:
    return start_server(make_repository(tmp_path), frontends=FRONT_ENDS)


async def test_a_front_end_that_is_killed_is_replaced(apart: RunningServer) -> None:
    _, front_ends = children(apart)
    async with Load(apart) as load:
        kill(front_ends[0])
        await asyncio.to_thread(wait_for, all_are_back(apart, front_ends[0]))
        await load.more(200)
    assert set(load.statuses) == {200}
    assert load.cut_off <= 8 * 3  # what was with the one that died, and tries before others took its connections
    wait_for(lambda: apart.metric("inferlane_in_flight_requests", model="simple") == 0)
    wait_for(lambda: apart.metric("inferlane_front_ends") == FRONT_ENDS)
    wait_for(lambda: each_front_end(apart, "inferlane_front_end_held_bytes") == [0, 0])
    assert sum(each_front_end(apart, "inferlane_process_restarts_total")) == 1


async def test_an_engine_that_is_killed_is_replaced_and_every_client_is_told_at_once(apart: RunningServer) -> None:
    engine, _ = children(apart)
    async with Load(apart) as load:
        kill(engine)
        await asyncio.to_thread(wait_for, all_are_back(apart, engine))
        await load.more(200)
    assert set(load.statuses) == {200, 503}
    assert load.cut_off == 0, "front ends live on, and answer"
    wait_for(lambda: apart.metric("inferlane_requests_total", model="simple", outcome="ok") >= 200)
    assert apart.metric("inferlane_process_restarts_total", process="engine") == 1


def test_an_engine_that_is_told_to_end_is_replaced(start_server: StartServer, tmp_path: Path) -> None:
    """As a person might who means to start it again: the front ends stay, so it waits for them no longer than set."""
    server = start_server(make_repository(tmp_path), frontends=FRONT_ENDS, drain_timeout_s=0.2)
    wait_for(lambda: "is ready at" in server.log.read_text())  # the supervisor knows it by then
    engine, _ = children(server)
    os.kill(engine, signal.SIGTERM)
    wait_for(all_are_back(server, engine))


async def test_requests_of_a_front_end_that_is_killed_leave_the_queue(
    start_server: StartServer, tmp_path: Path
) -> None:
    add_model(tmp_path, "slow", MAKE_SLOW, PATIENT)
    server = start_server(tmp_path, frontends=FRONT_ENDS)
    _, front_ends = children(server)
    async with server.async_client() as client:
        requests = [asyncio.create_task(client.post(SLOW, json={"inputs": [SLOW_TENSOR]})) for _ in range(12)]
        await asyncio.to_thread(wait_for, lambda: server.metric("inferlane_in_flight_requests", model="slow") == 12)
        for front_end in front_ends:
            kill(front_end)
        failed = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(each, httpx.TransportError) for each in failed)
    wait_ready(server)
    wait_for(lambda: server.metric("inferlane_in_flight_requests", model="slow") == 0)
    assert server.metric("inferlane_queue_requests", model="slow") == 0
    with server.client() as client:
        assert client.post(SLOW, json={"inputs": [SLOW_TENSOR]}).status_code == 200


async def test_termination_finishes_what_was_accepted(start_server: StartServer, tmp_path: Path) -> None:
    add_model(tmp_path, "slow", MAKE_SLOW, PATIENT)
    server = start_server(tmp_path, frontends=FRONT_ENDS)
    async with server.async_client() as client:
        requests = [asyncio.create_task(client.post(SLOW, json={"inputs": [SLOW_TENSOR]})) for _ in range(4)]
        await asyncio.to_thread(wait_for, lambda: server.metric("inferlane_in_flight_requests", model="slow") == 4)
        status = await asyncio.to_thread(server.stop)
        assert [(await request).status_code for request in requests] == [200] * 4
    assert status == 0


def test_all_processes_told_to_end_at_once_finish_what_was_accepted(apart: RunningServer) -> None:
    """As process managers do: the engine may not end before the front ends, which still read a request."""
    host, port = apart.address.split(":")
    body, headers, expected = good_request(5)
    lines = [f"POST {GOOD} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Expect: 100-continue"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 "), "it reads the body"
        for pid in (apart.process.pid, *child_pids(apart)):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: is_refused(host, int(port)))
        connection.sendall(body)
        with connection.makefile("rb") as incoming:
            head, _, answer = incoming.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert json.loads(answer)["outputs"][0]["data"] == expected.ravel().tolist()
    assert apart.process.wait(30) == 0


def test_a_second_interrupt_ends_all_at_once_and_leaves_nothing_behind(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not in `tmp_path`: paths of sockets are short
        monkeypatch.setenv("TMPDIR", folder)
        interrupt_twice(start_server(make_repository(tmp_path), frontends=FRONT_ENDS))
        assert not list(Path(folder).glob("inferlane-*"))


def interrupt_twice(apart: RunningServer) -> None:
    host, port = apart.address.split(":")
    head = f"POST {GOOD} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536), "it reads the body, for which it would wait"
        pids = child_pids(apart)
        apart.process.send_signal(signal.SIGINT)
        wait_for(lambda: is_refused(host, int(port)))
        apart.process.send_signal(signal.SIGINT)
        assert apart.process.wait(30) == 130
    wait_for(lambda: not any(map(is_running, pids)))


async def test_nothing_outlives_a_supervisor_that_is_killed(apart: RunningServer) -> None:
    engine, front_ends = children(apart)
    apart.process.kill()
    apart.process.wait(30)
    wait_for(lambda: not any(map(is_running, (engine, *front_ends))))


def test_stalled_and_half_sent_bodies_cost_nobody_else_anything(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(make_repository(tmp_path), frontends=FRONT_ENDS, body_timeout_s=1)
    host, port = server.address.split(":")
    head = f"POST {GOOD} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc".encode()
    stalled = [socket.create_connection((host, int(port)), timeout=30) for _ in range(8)]
    gone = [socket.create_connection((host, int(port)), timeout=30) for _ in range(8)]
    for connection in (*stalled, *gone):
        connection.sendall(head)
    for connection in gone:
        connection.close()
    body, headers, expected = good_request(5)
    with server.client() as client:
        for _ in range(20):
            answer = client.post(GOOD, content=body, headers=headers)
            assert answer.json()["outputs"][0]["data"] == expected.ravel().tolist()
    for connection in stalled:
        assert b" 408 " in connection.recv(65536).split(b"\r\n")[0]
        connection.close()


async def test_every_front_end_diagnoses_the_whole_server(apart: RunningServer) -> None:
    """Every request is a connection of its own, so that both are asked."""

    def diagnosed(requests: int) -> Callable[[], bool]:
        def check() -> bool:
            with apart.client() as client:
                document = client.get("/diagnose?model=simple").json()
            return bool(document.get("window", {}).get("requests") == requests)

        return check

    await asyncio.to_thread(wait_for, diagnosed(0))
    for seed in range(12):
        async with apart.async_client() as client:
            assert (await post_good(client, seed)).status_code == 200
    for _ in range(6):
        await asyncio.to_thread(wait_for, diagnosed(12))
    with apart.client() as client:
        stations = client.get("/diagnose?model=simple").json()["stations"]
    assert {"engine_loop", "event_loop"} <= set(stations), "the engine's own is told apart from the front ends'"


async def test_models_are_loaded_and_unloaded_on_all_front_ends_at_once(apart: RunningServer) -> None:
    """Every request is a connection of its own, so both front ends are asked."""

    async def statuses() -> set[int]:
        found = set()
        for seed in range(12):
            async with apart.async_client() as client:
                found.add((await post_good(client, seed)).status_code)
        return found

    async with apart.async_client() as client:
        assert await statuses() == {200}
        assert (await client.post("/v2/repository/models/simple/unload", json={})).status_code == 200
        assert await statuses() <= {404, 503}
        assert (await client.post("/v2/repository/models/simple/load", json={})).status_code == 200
        assert await statuses() == {200}


def test_a_model_that_cannot_be_loaded_ends_the_start(start_server: StartServer, tmp_path: Path) -> None:
    add_model(tmp_path, "broken", lambda path: path.write_bytes(b"no model") and path)
    server = start_server(tmp_path, wait=False, frontends=FRONT_ENDS)
    assert server.process.wait(60) == 1
    assert "broken" in server.log.read_text()


def test_shared_memory_that_is_too_small_is_refused_with_the_arithmetic(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(make_repository(tmp_path), wait=False, frontends=4, arena_bytes=1 << 20)
    assert server.process.wait(60) == 2
    assert "INFERLANE_ARENA_BYTES" in server.log.read_text()


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = ["--repository", str(make_repository(tmp_path)), "--frontends", "1", "--port"]
        command = [sys.executable, "-m", "service.cli", "serve", *options, str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr

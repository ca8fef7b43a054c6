"""Faults on purpose against the running server: good requests beside them must not notice."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, make_repository, wait_for

pytestmark = pytest.mark.chaos

GOOD = "/v2/models/simple/infer"
SLOW = "/v2/models/slow/infer"
RELOADS = 5
SLOW_TENSOR = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
ONE_AT_A_TIME = "[lanes]\nthreads_per_lane = 1\n[buckets]\nbatch = [1]\n"
MAKE_SLOW = partial(onnx_models.make_slow, products=24)
PATIENT = ONE_AT_A_TIME + "[batching]\ndefault_timeout_ms = 600000\n"
"""So slow, and with so long to wait, that no busy machine ends or refuses a request before all are seen in flight."""


def good_request(seed: int, rows: int = 1) -> tuple[bytes, dict[str, str], np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(-1000, 1000, (rows, 16), dtype=np.int32) for _ in range(2))
    tensors = [
        {"name": name, "shape": [rows, 16], "datatype": "INT32", "parameters": {"binary_data_size": array.nbytes}}
        for name, array in (("INPUT0", first), ("INPUT1", second))
    ]
    header = json.dumps({"inputs": tensors, "outputs": [{"name": "OUTPUT0"}]}).encode()
    body = header + first.tobytes() + second.tobytes()
    return body, {"Inference-Header-Content-Length": str(len(header))}, first + second


async def post_good(client: httpx.AsyncClient, seed: int) -> httpx.Response:
    """Sends a good request and checks that the answer is its own."""
    body, headers, expected = good_request(seed, rows=1 + seed % 3)
    response = await client.post(GOOD, content=body, headers=headers)
    if response.status_code == 200:
        assert response.json()["outputs"][0]["data"] == expected.ravel().tolist()
    return response


BAD = [
    (GOOD, b"{", {}, 400),
    (GOOD, b'{"inputs":[]}', {}, 400),
    (GOOD, good_request(1)[0][:-3], good_request(1)[1], 400),
    (GOOD, good_request(1)[0] + b"x", good_request(1)[1], 400),
    (GOOD, b"[" * 50_000, {}, 413),
    (GOOD, b"", {}, 400),
    (GOOD, good_request(2, rows=9)[0], good_request(2, rows=9)[1], 400),
    (GOOD, b"\x1f\x8b junk", {"Content-Encoding": "gzip"}, 400),
    ("/v2/models/nope/infer", b"{}", {}, 404),
    ("/v2/models/simple/versions/9/infer", b"{}", {}, 404),
    ("/v2/models/simple/predict", b"x", {"Content-Type": "image/jpeg"}, 400),
]


async def test_fifty_good_and_bad_requests_at_once_get_their_own_answers(server: RunningServer):
    order = random.Random(7)
    async with server.async_client() as client:

        async def bad(case: int) -> None:
            path, body, headers, status = BAD[case % len(BAD)]
            response = await client.post(path, content=body, headers=headers)
            assert response.status_code == status, response.text
            assert response.json()["error"]

        async def good(seed: int) -> None:
            assert (await post_good(client, seed)).status_code == 200

        jobs = [bad(case) for case in range(250)] + [good(seed) for seed in range(250)]
        order.shuffle(jobs)
        await asyncio.gather(*jobs)


async def test_clients_that_leave_cost_nobody_else_anything(server: RunningServer):
    """Half of the connections are reset while their request is somewhere in the server."""
    host, port = server.address.split(":")
    body, headers, _ = good_request(3)
    head = f"POST {GOOD} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in headers.items()
    )
    whole = head.encode() + b"\r\n" + body
    async with server.async_client() as client:

        async def leave(cut: int) -> None:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(whole[:cut])
            await writer.drain()
            writer.transport.abort()

        jobs = [leave(1 + cut * len(whole) // 60) for cut in range(60)]
        jobs += [post_good(client, seed) for seed in range(60)]
        random.Random(1).shuffle(jobs)
        await asyncio.gather(*jobs)
        assert (await post_good(client, 1)).status_code == 200
        assert (await client.get("/v2/health/ready")).status_code == 200


def test_a_stalled_body_is_cut_off_and_others_are_served_meanwhile(start_server: StartServer, tmp_path: Path):
    server = start_server(make_repository(tmp_path), body_timeout_s=0.5)
    host, port = server.address.split(":")
    body, headers, expected = good_request(5)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"POST {GOOD} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc".encode())
        with server.client() as client:
            response = client.post(GOOD, content=body, headers=headers)
        assert response.json()["outputs"][0]["data"] == expected.ravel().tolist()
        answer = connection.recv(65536)
    assert b" 408 " in answer.split(b"\r\n")[0]


def test_a_client_that_leaves_the_queue_is_not_run(start_server: StartServer, tmp_path: Path):
    """One slow model, one lane: requests that wait are dropped when their client goes."""
    add_model(tmp_path, "slow", MAKE_SLOW, PATIENT)
    server = start_server(tmp_path)
    host, port = server.address.split(":")
    body = json.dumps({"inputs": [SLOW_TENSOR]}).encode()
    head = f"POST {SLOW} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connections = [socket.create_connection((host, int(port)), timeout=30) for _ in range(12)]
    for connection in connections:
        connection.sendall(head + body)
    wait_for(lambda: server.metric("inferlane_in_flight_requests", model="slow") == 12)
    for connection in connections[1:]:
        connection.close()
    wait_for(lambda: server.metric("inferlane_requests_total", model="slow", outcome="cancelled") > 0)
    assert b" 200 " in connections[0].recv(65536)
    connections[0].close()
    wait_for(lambda: server.metric("inferlane_in_flight_requests", model="slow") == 0)
    with server.client() as client:
        ran = client.get("/v2/models/slow/stats").json()["model_stats"][0]["inference_count"]
    cancelled = server.metric("inferlane_requests_total", model="slow", outcome="cancelled")
    assert ran < 12
    assert cancelled >= 12 - ran


async def test_overload_is_refused_at_once_and_counted(start_server: StartServer, tmp_path: Path):
    add_model(tmp_path, "slow", onnx_models.make_slow, ONE_AT_A_TIME + "[batching]\nmax_queued_requests = 2\n")
    server = start_server(tmp_path)
    body = {"inputs": [SLOW_TENSOR]}
    async with server.async_client() as client:
        responses = await asyncio.gather(*(client.post(SLOW, json=body) for _ in range(20)))
    statuses = sorted(response.status_code for response in responses)
    assert set(statuses) == {200, 503}
    refused = [response for response in responses if response.status_code == 503]
    assert all("Exceeds maximum queue size" in response.json()["error"] for response in refused)
    assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
    assert server.metric("inferlane_requests_total", model="slow", outcome="overloaded") == len(refused)


async def test_a_deadline_in_the_queue_is_kept(start_server: StartServer, tmp_path: Path):
    add_model(tmp_path, "slow", partial(onnx_models.make_slow, products=60), ONE_AT_A_TIME)
    server = start_server(tmp_path)
    async with server.async_client() as client:
        first = asyncio.create_task(client.post(SLOW, json={"inputs": [SLOW_TENSOR]}))
        await asyncio.to_thread(wait_for, lambda: server.metric("inferlane_in_flight_requests", model="slow") == 1)
        hurried = {"inputs": [SLOW_TENSOR], "parameters": {"timeout": 1000}}
        response = await client.post(SLOW, json=hurried)
        assert response.status_code in {503, 504}
        assert (await first).status_code == 200


async def test_hot_reload_under_load_loses_no_request(start_server: StartServer, tmp_path: Path):
    repository = make_repository(tmp_path)
    server = start_server(repository)
    stop = asyncio.Event()
    versions: set[str] = set()
    answered = 0
    async with server.async_client() as client:

        async def load_it(worker: int) -> None:
            nonlocal answered
            seed = worker
            while not stop.is_set():
                response = await post_good(client, seed)
                assert response.status_code == 200, response.text
                versions.add(response.json()["model_version"])
                answered += 1
                seed += 8

        workers = [asyncio.create_task(load_it(worker)) for worker in range(8)]
        for cycle in range(RELOADS):
            add_model(repository, "simple", onnx_models.make_simple, "[batching]\nmax_batch_size = 8\n", str(cycle + 2))
            assert (await client.post("/v2/repository/models/simple/load", json={})).status_code == 200
            wanted = answered + 50
            await asyncio.to_thread(wait_for, lambda: answered >= wanted)  # noqa: B023 - awaited at once
        stop.set()
        await asyncio.gather(*workers)
    assert {str(RELOADS + 1), "1"} <= versions


async def test_a_broken_new_version_leaves_the_old_one_serving(start_server: StartServer, tmp_path: Path):
    repository = make_repository(tmp_path)
    server = start_server(repository)
    (repository / "simple" / "2").mkdir()
    (repository / "simple" / "2" / "model.onnx").write_bytes(b"no model")
    async with server.async_client() as client:
        response = await client.post("/v2/repository/models/simple/load", json={})
        assert response.status_code == 500
        assert "simple" in response.json()["error"]
        assert (await post_good(client, 1)).json()["model_version"] == "1"


async def test_termination_finishes_what_was_accepted(start_server: StartServer, tmp_path: Path):
    add_model(tmp_path, "slow", MAKE_SLOW, PATIENT)
    server = start_server(tmp_path)
    body = {"inputs": [SLOW_TENSOR]}
    async with server.async_client() as client:
        requests = [asyncio.create_task(client.post(SLOW, json=body)) for _ in range(4)]
        await asyncio.to_thread(wait_for, lambda: server.metric("inferlane_in_flight_requests", model="slow") == 4)
        status = await asyncio.to_thread(server.stop)
        assert [(await request).status_code for request in requests] == [200] * 4
    assert status == 0


def test_a_model_that_cannot_be_loaded_ends_the_start_and_says_why(start_server: StartServer, tmp_path: Path):
    add_model(tmp_path, "drifting", onnx_models.make_batch_dependent, "[batching]\nmax_batch_size = 4\n")
    server = start_server(tmp_path, wait=False)
    assert server.process.wait(60) == 1
    assert "drifting" in server.log.read_text()
    assert "max_batch_size" in server.log.read_text()

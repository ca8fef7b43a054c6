"""The composition root: the whole server in this process, on real models, without a socket."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr

from service import inference_front
from service.repository.start_up import LoadProgress
from tests.doubles import onnx_models
from tests.doubles.running_app import WAIT_S, running
from tests.doubles.running_server import add_model

TENSOR = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.5] * 16}
INFER = "/v2/models/identity/infer"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    add_model(tmp_path, "identity", onnx_models.make_identity, "[batching]\nmax_batch_size = 4\n")
    return tmp_path


async def test_a_server_from_start_to_end(repository: Path) -> None:
    async with running(repository) as server:
        assert server.failures == {}
        assert (await server.request("GET", "/v2/health/ready")).status_code == 200
        answer = await server.request("POST", INFER, json={"inputs": [TENSOR]})
        assert answer.json()["outputs"][0]["data"] == TENSOR["data"]
        assert "server-timing" in answer.headers
        metrics = (await server.request("GET", "/metrics")).text
        assert 'inferlane_requests_total{model="identity",outcome="ok",version="1"} 1.0' in metrics
        assert "nv_inference_request_success" in metrics
        assert (await server.request("GET", "/docs")).status_code == 200
        assert (await server.request("GET", "/nothing")).json()["error"].startswith("no such route")
    assert (await server.request("GET", "/v2/health/ready")).status_code != 200


async def test_requests_are_answered_while_models_load(repository: Path) -> None:
    may_go_on = threading.Event()
    began = threading.Event()

    def hold(progress: LoadProgress) -> None:
        began.set()
        assert may_go_on.wait(WAIT_S)

    async with running(repository, wait=False, on_progress=hold) as server:
        await asyncio.to_thread(began.wait, WAIT_S)
        assert (await server.request("GET", "/v2/health/live")).status_code == 200
        assert (await server.request("GET", "/v2/health/ready")).status_code != 200
        refused = await server.request("POST", INFER, json={"inputs": [TENSOR]})
        assert refused.status_code == 503
        assert "not ready: loading" in refused.json()["error"]
        may_go_on.set()
        await asyncio.wait_for(server.started.wait(), WAIT_S)
        assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 200


async def test_a_server_that_ends_while_models_load_leaves_nothing_behind(repository: Path) -> None:
    add_model(repository, "second", onnx_models.make_identity)
    may_go_on = threading.Event()
    began = threading.Event()
    told: list[LoadProgress] = []

    def hold(progress: LoadProgress) -> None:
        told.append(progress)
        began.set()
        assert may_go_on.wait(WAIT_S)

    async with running(repository, wait=False, on_progress=hold) as server:
        await asyncio.to_thread(began.wait, WAIT_S)
        asyncio.get_running_loop().call_later(0, may_go_on.set)
    assert not server.started.is_set()
    assert {progress.model for progress in told} == {"identity"}
    assert max(progress.done for progress in told) <= 1


async def test_a_model_that_fails_is_told_and_the_others_serve(repository: Path) -> None:
    add_model(repository, "drifting", onnx_models.make_batch_dependent)
    async with running(repository, exit_on_error=False) as server:
        assert list(server.failures) == ["drifting"]
        assert (await server.request("GET", "/v2/health/ready")).status_code == 200
        assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 200


async def test_a_server_that_is_about_to_exit_never_says_that_it_is_ready(repository: Path) -> None:
    add_model(repository, "drifting", onnx_models.make_batch_dependent)
    async with running(repository) as server:
        assert list(server.failures) == ["drifting"]
        assert (await server.request("GET", "/v2/health/ready")).status_code == 503


async def test_only_the_named_models_are_loaded(repository: Path) -> None:
    add_model(repository, "other", onnx_models.make_identity)
    async with running(repository, models=("other",)) as server:
        states = {
            entry["name"]: entry["state"] for entry in (await server.request("POST", "/v2/repository/index")).json()
        }
        assert states == {"identity": "UNAVAILABLE", "other": "READY"}
        assert (await server.request("POST", "/v2/repository/models/identity/load")).status_code == 200
        assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 200


async def test_a_repository_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with running(tmp_path / "absent") as server:
        assert "cannot be read" in server.failures["repository"].message


@pytest.mark.parametrize(
    ("settings", "header", "metrics"),
    [
        ({"metrics_enabled": False}, True, 404),
        ({"server_timing_enabled": False}, False, 200),
    ],
)
async def test_what_can_be_switched_off(
    repository: Path, settings: dict[str, bool], header: bool, metrics: int
) -> None:
    async with running(repository, **settings) as server:
        answer = await server.request("POST", INFER, json={"inputs": [TENSOR]})
        assert answer.status_code == 200
        assert ("server-timing" in answer.headers) is header
        assert (await server.request("GET", "/metrics")).status_code == metrics


async def test_triton_s_names_can_be_switched_off(repository: Path) -> None:
    async with running(repository, triton_metrics_enabled=False) as server:
        metrics = (await server.request("GET", "/metrics")).text
        assert "inferlane_" in metrics
        assert "nv_inference" not in metrics


async def test_limits_come_from_the_settings(repository: Path) -> None:
    async with running(repository, max_body_bytes=1024, overload_status=429, max_in_flight_bytes=1 << 20) as server:
        large = await server.request("POST", INFER, content=bytes(1025))
        assert large.status_code == 413
        assert "max_body_bytes is 1024" in large.json()["error"]


async def test_keys_guard_every_route_in_front_of_inference(repository: Path) -> None:
    async with running(repository, api_key=SecretStr("reader")) as server:
        assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 401
        headers = {"Authorization": "Bearer reader"}
        assert (await server.request("POST", INFER, json={"inputs": [TENSOR]}, headers=headers)).status_code == 200


async def test_an_unforeseen_error_is_answered_without_its_text(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __init__(self, *_: object) -> None: ...

        async def answer(self, served: object, exchange: object) -> object:
            raise RuntimeError("/secret/place")

    monkeypatch.setattr(inference_front, "Infer", Broken)
    async with running(repository) as server:
        answer = await server.request("POST", INFER, json={"inputs": [TENSOR]})
        assert answer.status_code == 500
        assert "incident" in answer.json()["error"]
        assert "secret" not in answer.text
        assert "/secret/place" in caplog.text

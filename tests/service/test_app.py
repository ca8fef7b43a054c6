"""The composition root: the whole server in this process, on real models, without a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service import app as app_module
from service.app import create_app, open_backend
from service.cards import ModelCard
from service.errors import ModelLoadFailed, ServiceError
from service.repository.layout import VersionFolder, find
from service.repository.loader import LoadProgress
from service.runtime.trt.flavour import describe
from service.settings import Settings
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.running_server import add_model
from tests.doubles.trt_models import DOUBLE, WIDTH

WAIT_S = 30
TENSOR = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.5] * 16}
INFER = "/v2/models/identity/infer"


class App:
    """A server between its start and its end."""

    def __init__(self, repository: Path, on_progress: Any, **settings: Any) -> None:
        self.failures: Mapping[str, ServiceError] = {}
        self.started = asyncio.Event()
        self.app = create_app(
            Settings(repository=repository, **settings), on_progress=on_progress, on_started=self._on_started
        )

    def _on_started(self, failures: Mapping[str, ServiceError]) -> None:
        self.failures = failures
        self.started.set()

    async def request(self, method: str, path: str, **rest: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, **rest)


@asynccontextmanager
async def running(
    repository: Path, *, wait: bool = True, on_progress: Any = None, **settings: Any
) -> AsyncIterator[App]:
    made = App(repository, on_progress or (lambda progress: None), **settings)
    async with made.app.router.lifespan_context(made.app):
        if wait:
            await asyncio.wait_for(made.started.wait(), WAIT_S)
        yield made
    assert server_threads() == []


def server_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("lane-", "pipeline"))]


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

    monkeypatch.setattr(app_module, "Infer", Broken)
    async with running(repository) as server:
        answer = await server.request("POST", INFER, json={"inputs": [TENSOR]})
        assert answer.status_code == 500
        assert "incident" in answer.json()["error"]
        assert "secret" not in answer.text
        assert "/secret/place" in caplog.text


@pytest.fixture
def no_tensorrt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def absent() -> object:
        raise ModelLoadFailed("TensorRT cannot be used: none is installed")

    app_module._tensorrt.cache_clear()
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", absent)
    yield
    app_module._tensorrt.cache_clear()


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    api = FakeCuda()
    flavour = describe("tensorrt", fake_tensorrt(api))
    app_module._tensorrt.cache_clear()
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", lambda: flavour)
    monkeypatch.setattr("service.runtime.cuda.device.runtime_api", lambda: api)
    yield api
    app_module._tensorrt.cache_clear()
    assert api.violations == []
    assert api.live_objects() == {}


def add_plan(repository: Path, name: str, card: str = "") -> VersionFolder:
    folder = repository / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "model.toml").write_text(card)
    (folder / "model.plan").write_bytes(plan_of(DOUBLE, VERSIONS["10"]))
    return find(repository, name).version()


@pytest.mark.parametrize(
    ("backend", "files", "said"),
    [
        ("auto", ("model.plan",), "model 'm' has a plan for TensorRT. TensorRT cannot be used: none is installed"),
        ("tensorrt", ("model.plan", "model.onnx"), "has a plan for TensorRT. TensorRT cannot be used"),
        ("tensorrt", ("model.onnx",), "asks for TensorRT, but version 1 has no .*plan file; build a plan"),
        ("onnxruntime", ("model.plan",), "has a plan and no model.onnx, but its card asks for ONNX Runtime"),
    ],
)
@pytest.mark.usefixtures("no_tensorrt")
def test_a_model_that_this_machine_cannot_open(tmp_path: Path, backend: str, files: tuple[str, ...], said: str) -> None:
    onnx, plan = (tmp_path / name if name in files else None for name in ("model.onnx", "model.plan"))
    with pytest.raises(ModelLoadFailed, match=said):
        open_backend(ModelCard(name="m", backend=backend), VersionFolder("1", tmp_path, onnx, plan), cpu_threads=1)


@pytest.mark.usefixtures("no_tensorrt")
def test_without_tensorrt_a_model_with_both_files_runs_on_the_cpu(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = add_plan(repository, "identity")
    backend = open_backend(ModelCard(name="identity"), version, cpu_threads=1)
    assert backend.spec.platform == "onnxruntime_onnx"
    assert "'identity' runs on ONNX Runtime although it has a plan: TensorRT cannot be used" in caplog.text
    backend.close()


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize(
    ("backend", "platform"),
    [("auto", "tensorrt_plan"), ("tensorrt", "tensorrt_plan"), ("onnxruntime", "onnxruntime_onnx")],
)
def test_a_plan_is_preferred(repository: Path, backend: str, platform: str) -> None:
    card = ModelCard(name="identity", backend=backend)
    opened = open_backend(card, add_plan(repository, "identity"), cpu_threads=1)
    assert opened.spec.platform == platform
    opened.close()


@pytest.mark.usefixtures("fake_gpu")
def test_a_plan_that_tensorrt_refuses_does_not_fall_back_to_the_cpu(repository: Path) -> None:
    version = add_plan(repository, "identity")
    (repository / "identity" / "1" / "model.plan").write_bytes(plan_of(DOUBLE, VERSIONS["8.6"]))
    with pytest.raises(ModelLoadFailed, match=r"model\.plan was built by TensorRT 8\.6"):
        open_backend(ModelCard(name="identity"), version, cpu_threads=1)


async def test_plans_are_served_beside_onnx_models(repository: Path, fake_gpu: FakeCuda) -> None:
    add_plan(repository, "double", "[lanes]\ncount = 2\n")
    async with running(repository) as server:
        assert server.failures == {}
        body = {"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": list(range(WIDTH))}]}
        answers = await asyncio.gather(
            *(server.request("POST", "/v2/models/double/infer", json=body) for _ in range(20)),
            server.request("POST", INFER, json={"inputs": [TENSOR]}),
        )
        assert [answer.status_code for answer in answers] == [200] * 21
        assert answers[0].json()["outputs"][0]["data"] == [2.0 * value for value in range(WIDTH)]
        metadata = (await server.request("GET", "/v2/models/double")).json()
        assert metadata["platform"] == "tensorrt_plan"
    assert fake_gpu.calls["cudaGraphLaunch"] > 0


def test_a_model_for_the_cpu_is_opened(repository: Path) -> None:
    backend = open_backend(ModelCard(name="identity"), find(repository, "identity").version(), cpu_threads=1)
    assert backend.spec.platform == "onnxruntime_onnx"
    assert backend.lane_count == 1
    backend.close()

"""Which backend a model gets, and the building of plans that are missing: on the fake TensorRT."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service import backends
from service.backends import open_backend, pci_bus_id
from service.cards import ModelCard
from service.errors import BuilderMissing, ModelLoadFailed
from service.repository.layout import VersionFolder, find
from service.runtime.trt.flavour import describe
from service.runtime.trt.manifest import manifest_path
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.running_app import WAIT_S, running
from tests.doubles.running_server import add_model
from tests.doubles.trt_models import DOUBLE, WIDTH

TENSOR = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.5] * 16}
INFER = "/v2/models/identity/infer"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    add_model(tmp_path, "identity", onnx_models.make_identity, "[batching]\nmax_batch_size = 4\n")
    return tmp_path


@pytest.fixture
def no_tensorrt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def absent() -> object:
        raise ModelLoadFailed("TensorRT cannot be used: none is installed")

    backends._tensorrt.cache_clear()
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", absent)
    yield
    backends._tensorrt.cache_clear()


@pytest.fixture
def generation() -> str:
    """Of the fake TensorRT that `fake_gpu` installs."""
    return "10"


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, generation: str) -> Iterator[FakeCuda]:
    api = FakeCuda()
    flavour = describe("tensorrt_lean" if "lean" in generation else "tensorrt", fake_tensorrt(api, generation))
    backends._tensorrt.cache_clear()
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", lambda: flavour)
    monkeypatch.setattr("service.runtime.cuda.device.runtime_api", lambda: api)
    yield api
    backends._tensorrt.cache_clear()
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


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize(("backend", "place"), [("tensorrt", "0000:3B:00.0"), ("onnxruntime", None)])
def test_where_a_models_gpu_is(repository: Path, backend: str, place: str | None) -> None:
    opened = open_backend(ModelCard(name="identity", backend=backend), add_plan(repository, "identity"), cpu_threads=1)
    assert pci_bus_id(opened) == place
    opened.close()


def test_a_model_for_the_cpu_is_opened(repository: Path) -> None:
    backend = open_backend(ModelCard(name="identity"), find(repository, "identity").version(), cpu_threads=1)
    assert backend.spec.platform == "onnxruntime_onnx"
    assert backend.lane_count == 1
    backend.close()


def test_a_model_that_cannot_be_read_does_not_keep_its_plan_from_serving(repository: Path, fake_gpu: FakeCuda) -> None:
    version = add_plan(repository, "identity")
    assert version.plan is not None
    write_manifest(version.plan, version.plan.read_bytes(), b"the model")
    gone = replace(version, onnx=version.path / "gone.onnx")
    open_backend(ModelCard(name="identity"), gone, cpu_threads=1).close()
    assert fake_gpu.calls["cudaSetDevice"] > 0


def write_manifest(plan_path: Path, plan: bytes, onnx: bytes) -> None:
    content = {
        "format": 1,
        "plan": {"bytes": len(plan), "sha256": hashlib.sha256(plan).hexdigest()},
        "built_on": {"gpu": "Fake GPU", "compute_capability": "9.0", "cuda": "13.0"},
        "onnx": {"bytes": len(onnx), "sha256": hashlib.sha256(onnx).hexdigest()},
    }
    manifest_path(plan_path).write_text(json.dumps(content))


class Builder:
    """Writes a plan where one is missing; while `may_go_on` is cleared it waits for that, or for being cut off."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.began = threading.Event()
        self.was_cut_off = False

    def __call__(self, card: ModelCard, version: VersionFolder, is_cut_off: threading.Event) -> Path:
        self.began.set()
        while not self.may_go_on.wait(0.01):
            if is_cut_off.is_set():
                self.was_cut_off = True
                raise ModelLoadFailed("cut off")
        self.built.append(card.name)
        (version.path / "model.plan").write_bytes(plan_of(DOUBLE, VERSIONS["10"]))
        return version.path / "model.plan"


def one_model(repository: Path, backend: str) -> tuple[ModelCard, VersionFolder]:
    return ModelCard(name="identity", backend=backend), find(repository, "identity").version()


def fail_to_build() -> Path:
    raise AssertionError("it is not asked for a plan")


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("backend", ["auto", "tensorrt"])
def test_a_missing_plan_is_built_and_served(repository: Path, backend: str) -> None:
    card, version = one_model(repository, backend)
    builder = Builder()
    opened = open_backend(card, version, cpu_threads=1, build_plan=lambda: builder(card, version, threading.Event()))
    assert (opened.spec.platform, builder.built) == ("tensorrt_plan", ["identity"])
    opened.close()


@pytest.mark.usefixtures("fake_gpu")
def test_a_plan_that_is_there_is_not_built_again(repository: Path) -> None:
    version = add_plan(repository, "identity")
    open_backend(ModelCard(name="identity"), version, cpu_threads=1, build_plan=fail_to_build).close()


@pytest.mark.usefixtures("fake_gpu")
def test_no_plan_is_built_for_a_model_of_onnx_runtime(repository: Path) -> None:
    opened = open_backend(*one_model(repository, "onnxruntime"), cpu_threads=1, build_plan=fail_to_build)
    assert opened.spec.platform == "onnxruntime_onnx"
    opened.close()


@pytest.mark.usefixtures("fake_gpu")
def test_a_build_that_fails_does_not_fall_back_to_the_cpu(repository: Path) -> None:
    def build() -> Path:
        raise ModelLoadFailed("the parser refused node 'x'")

    with pytest.raises(ModelLoadFailed, match="refused node"):
        open_backend(*one_model(repository, "auto"), cpu_threads=1, build_plan=build)


@pytest.mark.usefixtures("no_tensorrt")
def test_without_tensorrt_auto_runs_on_the_cpu_without_a_word(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_backend(*one_model(repository, "auto"), cpu_threads=1, build_plan=fail_to_build)
    assert opened.spec.platform == "onnxruntime_onnx"
    assert caplog.text == ""
    opened.close()
    with pytest.raises(ModelLoadFailed, match=r"'identity' asks for TensorRT\. TensorRT cannot be used: none"):
        open_backend(*one_model(repository, "tensorrt"), cpu_threads=1, build_plan=fail_to_build)


def lack_a_package() -> Path:
    raise BuilderMissing("building a plan needs the package onnx")


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize(
    ("generation", "build", "said"),
    [
        ("11-lean", fail_to_build, "tensorrt_lean 11.4.0.106 runs plans but cannot build them; install the full"),
        ("10", lack_a_package, "building a plan needs the package onnx"),
    ],
)
def test_where_nothing_can_build_what_to_do_is_said(
    repository: Path, caplog: pytest.LogCaptureFixture, build: Callable[[], Path], said: str
) -> None:
    opened = open_backend(*one_model(repository, "auto"), cpu_threads=1, build_plan=build)
    assert opened.spec.platform == "onnxruntime_onnx"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"'identity' runs on ONNX Runtime, for it has no plan: {said}" in caplog.text
    opened.close()
    with pytest.raises(ModelLoadFailed, match=f"asks for TensorRT and has no plan. {said}"):
        open_backend(*one_model(repository, "tensorrt"), cpu_threads=1, build_plan=build)


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("is_same", [True, False])
def test_a_plan_that_is_older_than_its_model_is_served_with_a_warning(
    repository: Path, caplog: pytest.LogCaptureFixture, is_same: bool
) -> None:
    version = add_plan(repository, "identity")
    assert version.plan is not None
    assert version.onnx is not None
    onnx = version.onnx.read_bytes()
    plan = version.plan.read_bytes()
    write_manifest(version.plan, plan, onnx if is_same else onnx[:-1] + b"?")
    open_backend(ModelCard(name="identity"), version, cpu_threads=1).close()
    warning = "model 'identity': model.plan is older than the model.onnx beside it, or of another model"
    assert (warning in caplog.text) is not is_same


@pytest.mark.usefixtures("fake_gpu")
async def test_a_server_is_not_ready_before_its_plans_are_built(repository: Path) -> None:
    builder = Builder()
    builder.may_go_on.clear()
    async with running(repository, wait=False, build_plan=builder) as server:
        assert await asyncio.to_thread(builder.began.wait, WAIT_S)
        assert (await server.request("GET", "/v2/health/live")).status_code == 200
        assert (await server.request("GET", "/v2/health/ready")).status_code == 503
        (entry,) = (await server.request("POST", "/v2/repository/index")).json()
        assert entry["state"] == "LOADING"
        builder.may_go_on.set()
        await asyncio.wait_for(server.started.wait(), WAIT_S)
        assert server.failures == {}
        assert (await server.request("GET", "/v2/health/ready")).status_code == 200
        assert (await server.request("GET", "/v2/models/identity")).json()["platform"] == "tensorrt_plan"


@pytest.mark.usefixtures("fake_gpu")
async def test_a_server_that_is_told_to_stop_cuts_a_build_off(repository: Path) -> None:
    builder = Builder()
    builder.may_go_on.clear()
    async with running(repository, wait=False, build_plan=builder) as server:
        assert await asyncio.to_thread(builder.began.wait, WAIT_S)
    assert (builder.was_cut_off, server.started.is_set()) == (True, False)


@pytest.mark.usefixtures("fake_gpu")
async def test_building_can_be_switched_off(repository: Path) -> None:
    builder = Builder()
    async with running(repository, build_plan=builder, build_plans_enabled=False) as server:
        assert (await server.request("GET", "/v2/models/identity")).json()["platform"] == "onnxruntime_onnx"
    assert builder.built == []

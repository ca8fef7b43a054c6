"""Plans made ready by the whole application, on the fake TensorRT: checked, as many lanes as pay, and lost."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service import backends
from service.backends import open_backend, open_reference
from service.batching.batcher import Batcher
from service.cards import ModelCard
from service.repository import loader as loader_module
from service.repository.layout import find
from service.runtime.trt.flavour import describe
from service.runtime.trt.manifest import file_sha256, manifest_path
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.running_app import App, running
from tests.doubles.running_server import add_model
from tests.doubles.trt_models import DOUBLE, RESHAPE, WIDTH

TENSOR = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [1.0] * WIDTH}


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    api = FakeCuda()
    flavour = describe("tensorrt", fake_tensorrt(api, "10"))
    backends._tensorrt.cache_clear()
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", lambda: flavour)
    monkeypatch.setattr("service.runtime.cuda.device.runtime_api", lambda: api)
    yield api
    backends._tensorrt.cache_clear()


def add_double(repository: Path, *, factor: float | None, card: str = "[lanes]\ncount = 1\n") -> Path:
    """A plan of `y = 2 x`, and beside it the ONNX model `y = factor * x`."""
    if factor is not None:
        add_model(repository, "double", partial(onnx_models.make_scaled, factor=factor))
    folder = repository / "double" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "model.toml").write_text(card)
    (folder / "model.plan").write_bytes(plan_of(DOUBLE, VERSIONS["10"]))
    return folder


async def index_of(server: App) -> dict[str, str]:
    (entry,) = (await server.request("POST", "/v2/repository/index")).json()
    return entry


@pytest.mark.parametrize("factor", [2.0, None])
async def test_a_plan_that_agrees_with_its_onnx_model_or_has_none_is_served(
    tmp_path: Path, fake_gpu: FakeCuda, factor: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    add_double(tmp_path, factor=factor)
    with caplog.at_level(logging.INFO):
        async with running(tmp_path) as server:
            assert server.failures == {}
            assert "reason" not in await index_of(server)
    assert ("4 of 4 buckets were compared with its reference" in caplog.text) is (factor is not None)
    assert "model 'double' version 1 ready in " in caplog.text
    assert "s: open 0." in caplog.text
    assert "; 4 buckets, 1 lane\n" in caplog.text


async def test_a_plan_that_contradicts_its_onnx_model_is_not_served(tmp_path: Path, fake_gpu: FakeCuda) -> None:
    add_double(tmp_path, factor=1.9)
    async with running(tmp_path) as server:
        message = server.failures["double"].message
        assert "wrong in every bucket that was compared: output 'y' agrees with the reference by" in message
        assert "build its plan again" in message


def write_manifest(folder: Path, onnx: bytes) -> None:
    """The manifest of a plan that was built from `onnx`."""
    plan = (folder / "model.plan").read_bytes()
    content = {
        "format": 1,
        "plan": {"bytes": len(plan), "sha256": hashlib.sha256(plan).hexdigest()},
        "built_on": {"gpu": "Fake GPU", "compute_capability": "9.0", "cuda": "13.0"},
        "onnx": {"bytes": len(onnx), "sha256": hashlib.sha256(onnx).hexdigest()},
    }
    manifest_path(folder / "model.plan").write_text(json.dumps(content))


async def test_a_plan_of_another_onnx_model_is_not_compared_with_this_one(tmp_path: Path, fake_gpu: FakeCuda) -> None:
    write_manifest(add_double(tmp_path, factor=1.9), b"old")
    async with running(tmp_path) as server:
        assert server.failures == {}


async def test_an_onnx_model_is_read_for_its_digest_once(
    tmp_path: Path, fake_gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = add_double(tmp_path, factor=2.0)
    write_manifest(folder, (folder / "model.onnx").read_bytes())
    read: list[Path] = []

    def digest(path: Path) -> str:
        read.append(path)
        return file_sha256(path)

    monkeypatch.setattr("service.runtime.trt.manifest.file_sha256", digest)
    with caplog.at_level(logging.INFO):
        async with running(tmp_path) as server:
            assert server.failures == {}
    assert "4 of 4 buckets were compared with its reference" in caplog.text
    assert read == [folder / "model.onnx"]


async def test_a_plan_whose_profile_fixes_an_input_is_compared_too(
    tmp_path: Path, fake_gpu: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    add_model(tmp_path, "reshape", onnx_models.make_reshape, "[lanes]\ncount = 1\n")
    (tmp_path / "reshape" / "1" / "model.plan").write_bytes(plan_of(RESHAPE, VERSIONS["10"]))
    with caplog.at_level(logging.INFO):
        async with running(tmp_path) as server:
            assert server.failures == {}
    assert "1 of 1 buckets were compared with its reference" in caplog.text


def test_a_model_on_the_cpu_and_an_onnx_model_that_does_not_open_are_no_reason_to_fail(
    tmp_path: Path, fake_gpu: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    folder = add_double(tmp_path, factor=2.0)
    caplog.set_level(logging.INFO)

    def has_reference(backend: str) -> bool:
        card, version = ModelCard(name="double", backend=backend), find(tmp_path, "double").version()
        opened = open_backend(card, version, cpu_threads=1)
        try:
            return open_reference(opened, cpu_threads=1) is not None
        finally:
            opened.close()

    assert not has_reference("onnxruntime")
    assert has_reference("tensorrt")
    (folder / "model.onnx").write_bytes(b"no model")
    assert not has_reference("tensorrt")
    assert "its plan is not compared with model.onnx: ONNX Runtime" in caplog.text
    (folder / "model.onnx").unlink()
    assert not has_reference("tensorrt")


async def test_without_a_number_in_the_card_the_lanes_are_found(tmp_path: Path, fake_gpu: FakeCuda) -> None:
    add_double(tmp_path, factor=None, card="")
    async with running(tmp_path) as server:
        assert server.failures == {}
        answer = await server.request("POST", "/v2/models/double/infer", json={"inputs": [TENSOR]})
        assert answer.json()["outputs"][0]["data"] == [2.0] * WIDTH
        metrics = (await server.request("GET", "/metrics")).text
    (lanes,) = (line.split()[-1] for line in metrics.splitlines() if line.startswith("inferlane_lanes{"))
    assert 1 <= float(lanes) <= 8
    assert fake_gpu.violations == []


async def test_a_lost_gpu_turns_the_server_not_ready(
    tmp_path: Path, fake_gpu: FakeCuda, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    batchers: list[Batcher] = []

    def keep(*arguments: Any, **options: Any) -> Batcher:
        batchers.append(Batcher(*arguments, **options))
        return batchers[-1]

    monkeypatch.setattr(loader_module, "Batcher", keep)
    add_double(tmp_path, factor=None)
    async with running(tmp_path) as server:
        assert (await server.request("GET", "/v2/health/ready")).status_code == 200
        fake_gpu.inject("cudaGraphLaunch", E.cudaErrorIllegalAddress)
        answer = await server.request("POST", "/v2/models/double/infer", json={"inputs": [TENSOR]})
        assert answer.status_code == 500
        assert "cudaErrorIllegalAddress" in answer.json()["error"]
        ready = await server.request("GET", "/v2/health/ready")
        assert ready.status_code == 503
        assert "its GPU is lost, and it ends now: cudaErrorIllegalAddress" in ready.json()["error"]
        refused = await server.request("POST", "/v2/models/double/infer", json={"inputs": [TENSOR]})
        assert refused.status_code == 503
        await asyncio.to_thread(batchers[0].close)
    assert "the GPU is lost to this process, which must be ended" in caplog.text

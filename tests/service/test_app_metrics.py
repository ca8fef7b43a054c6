"""What `/metrics` tells of a model on a GPU: on the fake CUDA, TensorRT and NVML."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service import backends
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_nvml import FakeGpu, FakeNvml
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.running_app import WAIT_S, App, running
from tests.doubles.running_server import add_model
from tests.doubles.trt_models import DOUBLE, WIDTH

INFER = "/v2/models/double/infer"
TENSOR = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": list(range(WIDTH))}
LABELS = {"model": "double", "version": "1"}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    api = FakeCuda()
    backends._tensorrt.cache_clear()
    monkeypatch.setattr(
        "service.runtime.trt.flavour.find_flavour", lambda: describe("tensorrt", fake_tensorrt(api, "10"))
    )
    monkeypatch.setattr("service.runtime.cuda.device.runtime_api", lambda: api)
    yield api
    backends._tensorrt.cache_clear()


@pytest.fixture
def nvml(api: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml({Cuda(api).pci_bus_id(0): FakeGpu("GPU-1")})
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "double" / "1"
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(plan_of(DOUBLE, VERSIONS["10"]))
    return tmp_path


async def samples(server: App) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = (await server.request("GET", "/metrics")).text
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value for each in families for sample in each.samples
    }


def value(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


async def samples_with(server: App, name: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Asks until there is such a sample: the sampler's thread comes to it when it does."""
    found = await samples(server)
    while not any(each == name for each, _ in found):
        found = await samples(server)
    return found


async def test_graphs_copies_and_memory_of_a_plan(repository: Path, nvml: FakeNvml) -> None:
    async with running(repository) as server:
        assert server.failures == {}
        before = await samples(server)
        for _ in range(3):
            assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 200
        after = await samples(server)
    bucket = {**LABELS, "bucket": "1"}

    def grown(name: str, **labels: str) -> float:
        return (value(after, name, **labels) or 0) - (value(before, name, **labels) or 0)

    assert grown("inferlane_graph_replays_total", **bucket) == 3
    assert grown("inferlane_eager_runs_total", **bucket) == 0
    assert grown("inferlane_copied_bytes_total", **LABELS, direction="h2d") == 3 * 4 * WIDTH
    assert grown("inferlane_copied_bytes_total", **LABELS, direction="d2h") == 3 * 4 * WIDTH
    assert value(after, "inferlane_bucket_stage_seconds_total", **bucket, stage="compute") > 0
    assert value(after, "inferlane_device_memory_bytes", **LABELS, owner="buffers") > 0
    assert value(after, "inferlane_startup_seconds", **LABELS, phase="warm_up") > 0


async def test_the_gpu_of_a_plan_is_sampled(repository: Path, nvml: FakeNvml) -> None:
    async with running(repository) as server:
        found = await asyncio.wait_for(samples_with(server, "inferlane_gpu_info"), WAIT_S)
        assert value(found, "inferlane_gpu_temperature_celsius", gpu_uuid="GPU-1") == 41
        assert value(found, "nv_gpu_utilization", gpu_uuid="GPU-1") == 0.5
    assert nvml.open_count == 0


@pytest.mark.parametrize("setting", ["gpu_metrics_enabled", "metrics_enabled"])
async def test_sampling_can_be_switched_off(repository: Path, nvml: FakeNvml, setting: str) -> None:
    async with running(repository, **{setting: False}) as server:
        assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 200
    assert nvml.calls == []


async def test_models_on_the_cpu_never_ask_nvml(tmp_path: Path, nvml: FakeNvml) -> None:
    add_model(tmp_path, "identity", onnx_models.make_identity)
    async with running(tmp_path) as server:
        found = await samples(server)
    assert not [name for name, _ in found if name.startswith("inferlane_gpu")]
    assert nvml.calls == []


async def test_a_plan_is_diagnosed_by_its_device_s_own_clock(
    repository: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.telemetry.history.INTERVAL_S", 0.01)
    async with running(repository) as server:
        await asyncio.sleep(0.05)
        for _ in range(3):
            assert (await server.request("POST", INFER, json={"inputs": [TENSOR]})).status_code == 200
        document = (await server.request("GET", "/diagnose")).json()
    assert document["model"]["backend"] == "tensorrt"
    assert {"h2d", "device", "d2h"} <= set(document["stations"])
    assert {document["stations"][name]["within"] for name in ("h2d", "device", "d2h")} == {None}
    (bucket,) = document["buckets"]
    assert (bucket["replays"], bucket["eager_runs"], bucket["miss_reason"]) == (3, 0, None)

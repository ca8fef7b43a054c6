"""The ceilings of the machine that runs a model: measured once in a process, by what the model runs on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from kernels.compile import Toolchain
from service import backends
from service.backends import machine_peaks, open_backend
from service.cards import LanesCard, ModelCard
from service.errors import DeviceError
from service.repository.layout import VersionFolder
from service.runtime.trt.flavour import describe
from service.telemetry.snapshot_probes import Peaks
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_driver import FakeDriver
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.trt_models import DOUBLE

PEAKS = Peaks(flops_per_s={"FP32": 1e12}, bytes_per_s=1e11, empty_kernel_s=1e-6)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No test finds another's measurements."""
    for cached in (backends._cpu_peaks, backends._gpu_peaks, backends._tensorrt):
        cached.cache_clear()
    yield
    for cached in (backends._cpu_peaks, backends._gpu_peaks, backends._tensorrt):
        cached.cache_clear()


def test_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Mock(return_value=PEAKS)
    monkeypatch.setattr("service.runtime.onnx.peaks.measure_cpu_peaks", measure)
    version = VersionFolder("1", tmp_path, onnx_models.make_identity(tmp_path / "model.onnx"), None)
    backend = open_backend(ModelCard(name="m"), version, cpu_threads=3)
    found = machine_peaks(backend, cpu_threads=3)
    assert (found.machine, found.peaks) == ("CPU, 3 threads", PEAKS)
    assert machine_peaks(backend, cpu_threads=3) is found
    assert machine_peaks(backend, cpu_threads=1).machine == "CPU, 1 thread"
    assert [call.args for call in measure.call_args_list] == [(3,), (1,)]


@pytest.mark.parametrize(
    ("lanes", "threads"),
    [(LanesCard(count=2), 4), (LanesCard(count=16), 1), (LanesCard(count=2, threads_per_lane=3), 3)],
)
def test_on_the_cpu_with_the_threads_of_a_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: LanesCard, threads: int
) -> None:
    measure = Mock(return_value=PEAKS)
    monkeypatch.setattr("service.runtime.onnx.peaks.measure_cpu_peaks", measure)
    version = VersionFolder("1", tmp_path, onnx_models.make_identity(tmp_path / "model.onnx"), None)
    machine_peaks(open_backend(ModelCard(name="m", lanes=lanes), version, cpu_threads=8), cpu_threads=8)
    measure.assert_called_once_with(threads)


def test_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement that fails is no answer for good."""
    api, driver = FakeCuda(), FakeDriver()
    flavour = describe("tensorrt", fake_tensorrt(api, "10"))
    toolchain = Toolchain("13.0", lambda text, architecture: b"none")
    measure = Mock(side_effect=[DeviceError("no memory"), PEAKS])
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", lambda: flavour)
    monkeypatch.setattr("service.runtime.cuda.device.runtime_api", lambda: api)
    monkeypatch.setattr("kernels.launch.driver_api", lambda: driver)
    monkeypatch.setattr("kernels.compile.nvrtc", lambda: toolchain)
    monkeypatch.setattr("service.layers.gpu_peaks.measure_peaks", measure)
    plan = tmp_path / "m.plan"
    plan.write_bytes(plan_of(DOUBLE, VERSIONS["10"]))
    backend = open_backend(ModelCard(name="m"), VersionFolder("1", tmp_path, None, plan), cpu_threads=3)
    with pytest.raises(DeviceError, match="no memory"):
        machine_peaks(backend, cpu_threads=3, kernel_cache=tmp_path)
    found = machine_peaks(backend, cpu_threads=3, kernel_cache=tmp_path)
    assert (found.machine, found.peaks) == ("Fake GPU", PEAKS)
    assert machine_peaks(backend, cpu_threads=1, kernel_cache=tmp_path) is found
    assert measure.call_count == 2
    backend.close()

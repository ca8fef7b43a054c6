"""Loading and launching on the doubles."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from kernels.launch import DeviceTensor, driver_api, require_tensor
from kernels.specs import Geometry
from service.errors import DeviceError, ModelLoadFailed
from service.runtime.cuda.calls import run_calls
from service.runtime.cuda.memory import DeviceBuffer
from service.tensors import DType
from tests.kernels.kernel_bench import KernelBench, tensor

GEOMETRY = Geometry((3, 2, 1), (64, 1, 1), 16)


@pytest.fixture
def bench(tmp_path: Path):
    bench = KernelBench(tmp_path, ["preprocess"])
    yield bench
    bench.close()
    assert bench.driver.loaded == {}


def test_kernels_are_built_for_the_device(bench: KernelBench) -> None:
    assert bench.asked == ["sm_90"]
    assert list(bench.driver.loaded.values()) == [b"code"]


def test_a_prepared_launch_is_enqueued_as_often_as_wanted(bench: KernelBench) -> None:
    launch = bench.kernels.prepare("preprocess_fp16", GEOMETRY, [ctypes.c_int(7)], stream=bench.stream)
    assert bench.driver.launches == []
    run_calls(bench.cuda, [launch, launch])
    assert bench.driver.launches == [("preprocess_fp16", (3, 2, 1), (64, 1, 1), 16, bench.stream.handle)] * 2
    assert bench.driver.argument(0, ctypes.c_int).value == 7


def test_a_launch_that_fails_is_told(bench: KernelBench) -> None:
    launch = bench.kernels.prepare("preprocess_fp16", GEOMETRY, [], stream=bench.stream)
    bench.driver.refuses = "cuLaunchKernel"
    with pytest.raises(DeviceError, match="in cuLaunchKernel preprocess_fp16") as caught:
        run_calls(bench.cuda, [launch])
    assert caught.value.is_sticky


def test_a_closed_module_launches_nothing(bench: KernelBench) -> None:
    bench.kernels.close()
    with pytest.raises(DeviceError, match="Kernels is used after it was closed"):
        bench.kernels.prepare("preprocess_fp16", GEOMETRY, [], stream=bench.stream)


@pytest.mark.parametrize("call", ["cuLibraryLoadData", "cuLibraryGetKernel"])
def test_a_cubin_that_does_not_load_leaves_nothing(bench: KernelBench, tmp_path: Path, call: str) -> None:
    bench.driver.refuses = call
    with pytest.raises(DeviceError, match=call):
        bench.load(tmp_path, ["preprocess"])
    assert len(bench.driver.loaded) == 1, "only the bench's own"


def test_much_shared_memory_is_asked_for(bench: KernelBench) -> None:
    geometry = Geometry((1, 1, 1), (1, 1, 1), 49153)
    bench.kernels.prepare("preprocess_fp16", geometry, [], stream=bench.stream)
    assert bench.driver.shared_bytes == {"preprocess_fp16": 49153}
    bench.driver.refuses = "cuKernelSetAttribute"
    with pytest.raises(DeviceError, match="preprocess_fp16, 49153 bytes of shared memory"):
        bench.kernels.prepare("preprocess_fp16", geometry, [], stream=bench.stream)


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 65536, 1), (1, 1, 65536), (1 << 31, 1, 1)])
def test_grids_beyond_cuda_are_refused(bench: KernelBench, grid: tuple[int, int, int]) -> None:
    with pytest.raises(DeviceError, match="split the batch"):
        bench.kernels.prepare("preprocess_fp16", Geometry(grid, (1, 1, 1)), [], stream=bench.stream)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensor(DType.FP32, 2, 5), r"'x' is FP32\[2, 5\]; the kernel takes FP16\[2, any\]"),
        (tensor(DType.FP16, 2), r"FP16\[2\]; the kernel takes"),
        (tensor(DType.FP16, 3, 5), r"FP16\[3, 5\]; the kernel takes"),
        (tensor(DType.FP16, 2, 0), r"FP16\[2, 0\]; the kernel takes"),
        (tensor(DType.FP16, 2, 5, device=1), "is on device 1, the kernel runs on device 0"),
        (tensor(DType.FP16, 2, 5, offset=1), "needs a multiple of 2"),
        (DeviceTensor(0, DType.FP16, (2, 5), 0), "other than 0"),
    ],
)
def test_tensors_are_held_against_the_kernel(bench: KernelBench, given: DeviceTensor, message: str) -> None:
    require_tensor("x", tensor(DType.FP16, 2, 5), (DType.FP16,), (2, None), kernels=bench.kernels)
    with pytest.raises(DeviceError, match=message):
        require_tensor("x", given, (DType.FP16,), (2, None), kernels=bench.kernels)


def test_tensors_lie_within_their_buffer(bench: KernelBench) -> None:
    with DeviceBuffer(bench.cuda, 24) as buffer:
        assert DeviceTensor.within(buffer, DType.FP32, (2, 3), device=0).address == buffer.address
        with pytest.raises(DeviceError, match="needs 28 bytes, the device buffer has 24"):
            DeviceTensor.within(buffer, DType.FP32, (7,), device=0)


def test_missing_binding_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(ModelLoadFailed, match=r"install inferlane\[kernels\]"):
        driver_api()

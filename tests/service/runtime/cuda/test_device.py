from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.errors import ModelLoadFailed
from service.runtime.cuda import device
from service.runtime.cuda.device import Cuda, LiveCounts, MemoryInfo
from service.runtime.cuda.memory import DeviceBuffer
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_copies import FakeCopies
from tests.doubles.fake_cuda_types import cudaError_t as E


def test_load(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> None:
    monkeypatch.setattr(device, "runtime_api", lambda: fake)
    assert Cuda.load().api is fake


@pytest.mark.parametrize(
    ("driver_version", "device_count", "message"),
    [
        (0, 1, "no NVIDIA driver answers .*--gpus all.*onnxruntime"),
        (12040, 1, r"cudaErrorInsufficientDriver.*supports CUDA 12\.4, the binding is of 13\.0; update the driver"),
        (13000, 0, "cudaErrorNoDevice: no CUDA-capable device is detected.*make a GPU visible"),
    ],
)
def test_nothing_to_load(fake: FakeCuda, driver_version: int, device_count: int, message: str) -> None:
    fake.driver_version, fake.device_count = driver_version, device_count
    with pytest.raises(ModelLoadFailed, match=message):
        Cuda(fake).probed()


def test_no_devices_without_an_error(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "cudaGetDeviceCount", lambda: (E.cudaSuccess, 0))
    with pytest.raises(ModelLoadFailed, match="no GPU is visible; check CUDA_VISIBLE_DEVICES"):
        Cuda(fake).probed()


def test_every_thread_has_its_device() -> None:
    fake = FakeCuda(device_count=2, total_bytes=10_000)
    cuda = Cuda(fake)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(cuda.use_device, 1).result()
        buffer = pool.submit(DeviceBuffer, cuda, 4_000).result()
        assert cuda.memory_info() == MemoryInfo(10_000, 10_000)
        assert pool.submit(cuda.memory_info).result() == MemoryInfo(6_000, 10_000)
        assert fake.cudaGetDevice()[1] == 0
    buffer.close()


def test_counts_of_many_threads(cuda: Cuda) -> None:
    barrier = threading.Barrier(4, timeout=60)

    def change() -> None:
        barrier.wait()
        for _ in range(500):
            cuda.count(LiveCounts(events=1, pinned_bytes=3))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(change) for _ in range(4)]:
            done.result()
    assert cuda.live == LiveCounts(events=2000, pinned_bytes=6000)


def test_counts_cancel_out() -> None:
    counts = LiveCounts(1, 2, 3, 4, 5, 6)
    assert counts + -counts == LiveCounts()
    assert counts + counts == LiveCounts(2, 4, 6, 8, 10, 12)


@pytest.mark.parametrize(
    ("driver_version", "runtime_version", "has_batches"),
    [(13000, 13000, True), (12080, 12080, True), (12070, 12080, False), (13000, 12060, False)],
)
def test_batch_copies_need_driver_and_binding(
    fake: FakeCuda, driver_version: int, runtime_version: int, has_batches: bool
) -> None:
    fake.driver_version, fake.runtime_version = driver_version, runtime_version
    cuda = Cuda(fake)
    assert (cuda.batch_copy_attributes() is not None) is has_batches
    assert cuda.batch_copy_attributes() is cuda.batch_copy_attributes()


def test_old_binding_has_no_batch_copies(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> None:
    monkeypatch.delattr(FakeCopies, "cudaMemcpyBatchAsync")
    assert Cuda(fake).batch_copy_attributes() is None

"""NVML on the real device: the figures are plausible, and agree with CUDA."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from service.runtime.cuda.copies import copy_h2d
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Stream
from service.telemetry.gpu_figures import ClockEvent, GpuFigures, Reading
from service.telemetry.nvml import NvmlGpu, load_nvml

pytestmark = pytest.mark.gpu

BUSY_S = 1.2
COPIED_BYTES = 64 << 20
RATIOS = [reading for reading in Reading if reading.name.endswith("_RATIO")]
ACTIVITIES = {
    Reading.SM_ACTIVITY_RATIO,
    Reading.TENSOR_ACTIVITY_RATIO,
    Reading.MEMORY_BANDWIDTH_RATIO,
    Reading.PCIE_SENT_BYTES_PER_S,
    Reading.PCIE_RECEIVED_BYTES_PER_S,
}


@pytest.fixture
def cuda() -> Cuda:
    cuda = Cuda.load()
    cuda.use_device(0)
    return cuda


@pytest.fixture
def gpu(cuda: Cuda) -> Iterator[NvmlGpu]:
    nvml = load_nvml()
    gpu = NvmlGpu(nvml, cuda.pci_bus_id(0))
    yield gpu
    gpu.close()
    nvml.nvmlShutdown()


def copy_for(cuda: Cuda, seconds: float) -> float:
    """Uploads without a pause; returns the bytes per second."""
    copied = 0
    with Stream(cuda) as stream, PinnedBuffer(cuda, COPIED_BYTES) as pinned, DeviceBuffer(cuda, COPIED_BYTES) as device:
        pinned.host(np.uint8, (COPIED_BYTES,))[:] = 1
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            copy_h2d(cuda, device.address, pinned.address, COPIED_BYTES, stream=stream)
            stream.sync()
            copied += COPIED_BYTES
        return copied / (time.monotonic() - begun)


def test_figures_are_plausible(gpu: NvmlGpu, cuda: Cuda) -> None:
    figures = gpu.read()
    readings = figures.readings
    assert figures.name == cuda.device_name(0)
    assert figures.uuid.startswith("GPU-")
    assert figures.driver.count(".") >= 1
    assert all(0 <= readings[ratio] <= 1 for ratio in RATIOS if ratio in readings)
    # The driver keeps a part of the memory back, which NVML counts and CUDA does not.
    assert readings[Reading.MEMORY_TOTAL_BYTES] == pytest.approx(cuda.memory_info().total_bytes, rel=0.1)
    assert 0 < readings[Reading.MEMORY_USED_BYTES] < readings[Reading.MEMORY_TOTAL_BYTES]
    assert 10 < readings[Reading.POWER_WATTS] < 1.2 * readings[Reading.POWER_LIMIT_WATTS] < 2500
    assert readings[Reading.ENERGY_JOULES] > 0
    assert 10 < readings[Reading.TEMPERATURE_CELSIUS] < 110
    assert 1e8 < readings[Reading.SM_CLOCK_HERTZ] <= readings[Reading.MAX_SM_CLOCK_HERTZ] < 5e9
    assert 1e8 < readings[Reading.MEMORY_CLOCK_HERTZ] <= readings[Reading.MAX_MEMORY_CLOCK_HERTZ] < 2e10
    assert set(figures.clock_events) == set(ClockEvent)


def test_a_reading_takes_a_small_part_of_the_second(gpu: NvmlGpu) -> None:
    gpu.read()
    first_ns = gpu.read().sampling_ns
    assert gpu.read().sampling_ns - first_ns < 100_000_000


def test_work_is_seen(gpu: NvmlGpu, cuda: Cuda) -> None:
    before = gpu.read()
    bytes_per_s = copy_for(cuda, BUSY_S)
    after = gpu.read()
    assert after.readings[Reading.ENERGY_JOULES] > before.readings[Reading.ENERGY_JOULES]
    if not _has_activity(after):
        pytest.skip(f"{after.name} has no GPM, or not for this user")
    # In a container NVML may not know this process by its id, and then tells of no others.
    assert set(Reading) - after.readings.keys() <= {Reading.OTHER_PROCESSES}
    # Packets' headers count too, and the interval is a little longer than the copying.
    assert after.readings[Reading.PCIE_RECEIVED_BYTES_PER_S] == pytest.approx(bytes_per_s, rel=0.35)
    assert after.readings[Reading.PCIE_SENT_BYTES_PER_S] < bytes_per_s / 2


def _has_activity(figures: GpuFigures) -> bool:
    return bool(ACTIVITIES & figures.readings.keys())

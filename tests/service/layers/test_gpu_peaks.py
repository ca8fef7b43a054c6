"""The GPU's ceilings, by the real kernels on the emulated device and its scripted clock."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from kernels.compile import Toolchain
from kernels.launch import load_kernels
from kernels.peaks import FMA_FLOPS
from service.errors import DeviceError
from service.layers.gpu_peaks import SIZES, SOURCES, PeakSizes, measure_peaks, sizes_for
from service.runtime.cuda.device import Cuda, LiveCounts
from tests.doubles.emulated_device import EmulatedCuda, EmulatedDriver

TINY = PeakSizes(copy_bytes=1 << 16, gemm_side=256, fma_threads=256, fma_iterations=2, repeats=2, empty_repeats=10)


def test_rates_follow_from_the_times(tmp_path: Path) -> None:
    """Between two events lie 4 us, whatever runs."""
    device = EmulatedCuda(total_bytes=1 << 28, clock=itertools.count(step=4000).__next__)
    cuda = Cuda(device)
    toolchain = Toolchain("13.0", lambda text, architecture: b"none")
    kernels = load_kernels(cuda, EmulatedDriver(device), toolchain, device=0, cache=tmp_path, sources=SOURCES)
    peaks = measure_peaks(cuda, kernels, TINY)
    half = pytest.approx(2 * 256**3 / 2e-6)
    assert peaks.flops_per_s == {"FP32": pytest.approx(256 * 2 * FMA_FLOPS / 2e-6), "FP16": half, "BF16": half}
    assert peaks.bytes_per_s == pytest.approx(2 * (1 << 16) / 2e-6)
    assert peaks.empty_kernel_s == pytest.approx(4e-7)
    assert peaks.cache_bytes == 50 << 20
    assert cuda.live == LiveCounts()
    assert device.violations == []


def test_sizes_by_free_memory() -> None:
    largest, middle, smallest = SIZES
    assert sizes_for(140 << 30) is largest
    assert sizes_for(2 * largest.device_bytes - 1) is middle
    assert sizes_for(2 * smallest.device_bytes) is smallest
    with pytest.raises(DeviceError, match="of free device memory, there are 1000"):
        sizes_for(1000)

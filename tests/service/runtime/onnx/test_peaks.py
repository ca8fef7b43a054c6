"""The CPU's ceilings: by a scripted clock, by the real one, and where Linux tells the caches."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from service.runtime.onnx.peaks import CpuPeakSizes, cache_bytes, measure_cpu_peaks
from service.runtime.onnx.products_model import products_model
from service.runtime.onnx.session import open_model_bytes

SMALL = CpuPeakSizes(side=8, copy_bytes=1 << 16, copied_at_once=1 << 14, nodes=5, rounds=3)


def test_rates_follow_from_the_times(tmp_path: Path) -> None:
    """At best a square takes 8 us, five products of single numbers 6 us, one 2 us, the copy 4 us."""
    durations = itertools.chain.from_iterable((9 * each, each, 2 * each) for each in (8000, 6000, 2000, 4000))
    stamps = itertools.chain.from_iterable((0, duration) for duration in durations)
    peaks = measure_cpu_peaks(2, SMALL, clock=lambda: next(stamps), root=tmp_path)
    assert peaks.flops_per_s == {"FP32": pytest.approx(2 * 8**3 / 8e-6)}
    assert peaks.bytes_per_s == pytest.approx(2 * (1 << 14) / 4e-6)
    assert peaks.empty_kernel_s == pytest.approx(1e-6)
    assert peaks.cache_bytes == 0


def test_on_this_machine() -> None:
    peaks = measure_cpu_peaks(1, CpuPeakSizes(side=128, copy_bytes=1 << 22, copied_at_once=1 << 20, rounds=3))
    assert peaks.flops_per_s["FP32"] > 1e8
    assert 1e8 < peaks.bytes_per_s < 1e12
    assert 0 < peaks.empty_kernel_s < 1e-3


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"index0": "32K\n", "index3": "260M\n", "index2": "2048K\n"}, 260 << 20),
        ({"index0": "odd"}, 0),
        ({"index0": ""}, 0),
    ],
)
def test_the_last_cache(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/devices/system/cpu/cpu0/cache" / name
        path.mkdir(parents=True)
        (path / "size").write_text(text)
    assert cache_bytes(tmp_path) == expected


@pytest.mark.parametrize("count", [1, 2, 64])
def test_the_model_is_one_of_onnx_and_multiplies(count: int) -> None:
    x, weights = np.array([[2, 0], [0, 1]], np.float32), np.array([[1, 1], [0, 1]], np.float32)
    model = products_model(weights, count)
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
    (z,) = open_model_bytes(model, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(z, x @ np.linalg.matrix_power(weights, count))

"""P9 on the CPU: what ONNX Runtime and the memory reach at best with a lane's threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.machine import ROOT, read_or_empty
from service.requests import Clock
from service.runtime.onnx.products_model import products_model
from service.runtime.onnx.session import open_model_bytes
from service.telemetry.snapshot_probes import Peaks
from service.tensors import HostArray

_CACHE_FOLDER = "sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class CpuPeakSizes:
    """How much is asked of the machine.

    Attributes:
        side: rows, columns and depth of the matrix product.
        copy_bytes: of one buffer of two; more than any cache.
        nodes: of the model whose nodes do next to nothing.
        rounds: of each measurement, after one that does not count.
    """

    side: int = 1024
    copy_bytes: int = 1 << 28
    nodes: int = 64
    rounds: int = 5


def measure_cpu_peaks(
    threads: int,
    sizes: CpuPeakSizes = CpuPeakSizes(),
    *,
    clock: Clock = time.perf_counter_ns,
    root: Path = ROOT,
) -> Peaks:
    """Measures the ceilings with so many threads; about a second, blocking.

    The FLOPs are of an FP32 matrix product of ONNX Runtime, the bytes of a copy by NumPy, cut among the threads, and
    the empty kernel is a product of two single numbers, less what the call itself costs. Other types than FP32 have no
    ceiling here: what this machine does with FP16 or INT8 depends on the operator.

    Args:
        threads: as a lane has.
        sizes: how much is asked.
        clock: monotonic nanoseconds.
        root: the folder that `sys` lies in.

    Raises:
        ModelLoadFailed: ONNX Runtime is missing.
    """
    rng = np.random.default_rng(0)
    square = rng.standard_normal((sizes.side, sizes.side), np.float32)
    timed = _Timer(clock, sizes.rounds)
    product_s = timed.products(square, 1, threads)
    one = np.ones((1, 1), np.float32)
    empty_s = (timed.products(one, sizes.nodes, threads) - timed.products(one, 1, threads)) / (sizes.nodes - 1)
    return Peaks(
        flops_per_s={"FP32": 2 * sizes.side**3 / product_s},
        bytes_per_s=2 * sizes.copy_bytes / timed.copy(sizes.copy_bytes, threads),
        empty_kernel_s=max(1e-9, empty_s),
        cache_bytes=cache_bytes(root),
    )


def cache_bytes(root: Path = ROOT) -> int:
    """Size of the last cache before the memory, as Linux tells it; 0 where it does not."""
    sizes = [_bytes_of(read_or_empty(path)) for path in sorted((root / _CACHE_FOLDER).glob("index*/size"))]
    return max(sizes, default=0)


class _Timer:
    """Medians of calls, the first one left out."""

    def __init__(self, clock: Clock, rounds: int) -> None:
        self._clock = clock
        self._rounds = rounds

    def products(self, square: HostArray, count: int, threads: int) -> float:
        """Seconds of a run of `count` products in a row, each of the one before with `square`."""
        session = open_model_bytes(products_model(count), threads=threads)
        feeds = {"x": square, "y": square}
        return self._seconds(lambda: session.run(None, feeds))

    def copy(self, nbytes: int, threads: int) -> float:
        """Seconds of a copy from one buffer to another, by all threads at once."""
        source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
        with ThreadPoolExecutor(threads) as pool:
            return self._seconds(lambda: list(pool.map(_copy, parts)))

    def _seconds(self, call: Callable[[], Sequence[object]]) -> float:
        call()
        times_ns = []
        for _ in range(self._rounds):
            begun_ns = self._clock()
            call()
            times_ns.append(self._clock() - begun_ns)
        return max(1, statistics.median(times_ns)) / 1e9


def _copy(part: tuple[HostArray, HostArray]) -> None:
    """NumPy lets go of the interpreter meanwhile."""
    source, target = part
    np.copyto(target, source)


def _bytes_of(text: str) -> int:
    """Of `32768K`."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    return int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0

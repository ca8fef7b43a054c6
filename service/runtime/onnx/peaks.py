"""P9 on the CPU: what ONNX Runtime and the memory reach at best with a lane's threads."""

from __future__ import annotations

import itertools
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
        side: rows, columns and depth of the matrix product; a few milliseconds, as long as a slice of time.
        copy_bytes: of one buffer of two; both together are more than any cache.
        copied_at_once: bytes of it that are timed together.
        nodes: of the model whose nodes do next to nothing.
        rounds: of each measurement, after one that does not count.
    """

    side: int = 512
    copy_bytes: int = 1 << 28
    copied_at_once: int = 1 << 24
    nodes: int = 64
    rounds: int = 50


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
        bytes_per_s=2 * sizes.copied_at_once / timed.copy(sizes, threads),
        empty_kernel_s=max(1e-9, empty_s),
        cache_bytes=cache_bytes(root),
    )


def cache_bytes(root: Path = ROOT) -> int:
    """Size of the last cache before the memory, as Linux tells it; 0 where it does not."""
    sizes = [_bytes_of(read_or_empty(path)) for path in sorted((root / _CACHE_FOLDER).glob("index*/size"))]
    return max(sizes, default=0)


class _Timer:
    """The shortest of several calls, the first one left out: whatever else runs here only lengthens them."""

    def __init__(self, clock: Clock, rounds: int) -> None:
        self._clock = clock
        self._rounds = rounds

    def products(self, square: HostArray, count: int, threads: int) -> float:
        """Seconds of a run of `count` products in a row, each of the one before with `square`."""
        session = open_model_bytes(products_model(square, count), threads=threads)
        return self._seconds(lambda: session.run(None, {"x": square}))

    def copy(self, sizes: CpuPeakSizes, threads: int) -> float:
        """Seconds of a copy of some bytes by all threads at once; the next call copies the next ones."""
        source, target = np.ones(sizes.copy_bytes, np.uint8), np.zeros(sizes.copy_bytes, np.uint8)
        pieces = sizes.copy_bytes // sizes.copied_at_once
        places = itertools.cycle(
            [
                list(zip(np.array_split(here, threads), np.array_split(there, threads), strict=True))
                for here, there in zip(np.split(source, pieces), np.split(target, pieces), strict=True)
            ]
        )
        with ThreadPoolExecutor(threads) as pool:
            return self._seconds(lambda: list(pool.map(_copy, next(places))))

    def _seconds(self, call: Callable[[], Sequence[object]]) -> float:
        call()
        times_ns = []
        for _ in range(self._rounds):
            begun_ns = self._clock()
            call()
            times_ns.append(self._clock() - begun_ns)
        return max(1, min(times_ns)) / 1e9


def _copy(part: tuple[HostArray, HostArray]) -> None:
    """NumPy lets go of the interpreter meanwhile."""
    source, target = part
    np.copyto(target, source)


def _bytes_of(text: str) -> int:
    """Of `32768K`."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    return int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0

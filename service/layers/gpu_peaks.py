"""P9: what a GPU does at best, by this project's own kernels: a copy, a matrix product, multiply-adds, and nothing.

Every ceiling is measured, none is a datasheet's. What no kernel here measures (TF32, INT8, FP8) has no ceiling, and
layers of such types stay unclassified. BF16 has FP16's: tensor cores from compute capability 8.0 on take both at one
rate, by NVIDIA's data sheets of the A100, the L4 and the H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.launch import Kernels
from kernels.peaks import FMA_FLOPS, Gemm, prepare_copy, prepare_fma, prepare_gemm
from kernels.session import DeviceSession
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Event
from service.telemetry.snapshot_probes import Peaks
from service.tensors import DType

SOURCES = ("peaks", "gemm_wgmma")

ROUNDS = 5
_BLOCK = 256
_RANDOM_VALUES = 1 << 20
_MATRICES = 3
_HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class PeakSizes:
    """How much is asked of the device.

    Attributes:
        copy_bytes: of one buffer of two; more than any cache.
        gemm_side: rows, columns and depth of the matrix product.
        fma_threads: of the multiply-adds.
        fma_iterations: of each.
        repeats: launches in a graph.
        empty_repeats: likewise of the kernel that does nothing.
    """

    copy_bytes: int = 1 << 30
    gemm_side: int = 8192
    fma_threads: int = 1 << 20
    fma_iterations: int = 4096
    repeats: int = 4
    empty_repeats: int = 200

    @property
    def device_bytes(self) -> int:
        """The most memory that is in use at once."""
        return max(2 * self.copy_bytes, _MATRICES * self.gemm_side**2 * _HALF_BYTES, 4 * self.fma_threads)


SIZES = (PeakSizes(), PeakSizes(copy_bytes=1 << 28, gemm_side=4096), PeakSizes(copy_bytes=1 << 27, gemm_side=2048))
"""The largest first: smaller ones, which reach a little less, where a model leaves less memory."""


def sizes_for(free_bytes: int, sizes: Sequence[PeakSizes] = SIZES) -> PeakSizes:
    """The largest sizes that take no more than half of the free memory.

    Raises:
        DeviceError: even the smallest take more.
    """
    for each in sizes:
        if each.device_bytes <= free_bytes // 2:
            return each
    raise DeviceError(
        f"the device's peaks need {2 * sizes[-1].device_bytes} bytes of free device memory, there are {free_bytes}; "
        "measure them before the models are loaded, or on a device with less to serve"
    )


def measure_peaks(cuda: Cuda, kernels: Kernels, sizes: PeakSizes | None = None) -> Peaks:
    """Measures the ceilings of the kernels' device; half a second, blocking, on the thread that uses the device.

    Args:
        cuda: the process's CUDA.
        kernels: hold `SOURCES`; closed at the end.
        sizes: how much is asked; chosen by the free memory if None.

    Raises:
        DeviceError: the device has too little free memory, or fails.
    """
    with DeviceSession(cuda, kernels) as session:
        chosen = sizes_for(cuda.memory_info().free_bytes) if sizes is None else sizes
        with session.scope():
            copied = _copy_bytes_per_s(session, chosen)
        with session.scope():
            flops_per_s = {"FP32": _fma_flops_per_s(session, chosen)}
        with session.scope():
            half = _gemm_flops_per_s(session, chosen)
        flops_per_s["FP16"] = half
        if cuda.compute_capability(kernels.device) >= (8, 0):
            flops_per_s["BF16"] = half
        with session.scope():
            call = prepare_fma(kernels, session.empty(DType.FP32, _BLOCK), 1, stream=session.stream)
            empty_s = _seconds(session, call, chosen.empty_repeats)
        return Peaks(
            flops_per_s=flops_per_s,
            bytes_per_s=copied,
            empty_kernel_s=empty_s,
            cache_bytes=cuda.cache_bytes(kernels.device),
        )


def _copy_bytes_per_s(session: DeviceSession, sizes: PeakSizes) -> float:
    """Read and written bytes count."""
    source, target = (session.empty(DType.UINT8, sizes.copy_bytes) for _ in range(2))
    call = prepare_copy(session.kernels, source, target, stream=session.stream)
    return 2 * sizes.copy_bytes / _seconds(session, call, sizes.repeats)


def _fma_flops_per_s(session: DeviceSession, sizes: PeakSizes) -> float:
    out = session.empty(DType.FP32, sizes.fma_threads)
    call = prepare_fma(session.kernels, out, sizes.fma_iterations, stream=session.stream)
    return sizes.fma_threads * sizes.fma_iterations * FMA_FLOPS / _seconds(session, call, sizes.repeats)


def _gemm_flops_per_s(session: DeviceSession, sizes: PeakSizes) -> float:
    """Of random values: a device clocks higher over zeros, which change no bits."""
    side = sizes.gemm_side
    values = np.random.default_rng(0).standard_normal(_RANDOM_VALUES, np.float32).astype(np.float16)
    left = session.upload(np.resize(values, (side, side)))
    right = session.upload(np.resize(values[::-1], (side, side)))
    out = session.empty(DType.FP16, side, side)
    how = Gemm.best_on(session.kernels)
    call = prepare_gemm(session.kernels, left, right, out, how=how, stream=session.stream)
    return 2 * side**3 / _seconds(session, call, sizes.repeats)


def _seconds(session: DeviceSession, call: PreparedCall, repeats: int) -> float:
    """Of one launch among many in a graph: the shortest round, after one that warms up."""
    stream, times_ns = session.stream, []
    with (
        session.capture(*[call] * repeats) as graph,
        Event(session.cuda, timing_enabled=True, blocking_sync=False) as begun,
        Event(session.cuda, timing_enabled=True, blocking_sync=False) as done,
    ):
        graph.launch(stream=stream)
        for _ in range(ROUNDS):
            begun.record(stream=stream)
            graph.launch(stream=stream)
            done.record(stream=stream)
            done.sync()
            times_ns.append(done.elapsed_ns_since(begun))
    return max(1, min(times_ns)) / repeats / 1e9

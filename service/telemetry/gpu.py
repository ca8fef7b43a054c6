"""Samples the GPUs that models use, about once a second, on a thread of its own.

Promises: whatever is missing (bindings, driver, permission, a single figure) leaves metrics out and says so once in
the log; nothing here ever fails a request or keeps the server from starting or ending. NVML is loaded when the first
model uses a GPU, and not before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import ModuleType

from service.requests import Clock
from service.telemetry.gpu_figures import GpuFigures
from service.telemetry.nvml import NvmlGpu, NvmlUnavailable, load_nvml
from service.units import NS_PER_S

INTERVAL_S = 1.0
"""Asking more often was seen to cost applications latency, and NVML itself averages over up to a second."""

MAX_AGE_NS = 10 * NS_PER_S
"""Figures that are older are not shown: NVML hangs, and a graph that goes on level would hide it."""

STOP_TIMEOUT_S = 2.0
"""Of a GPU that is lost NVML may never tell anything; the server ends all the same."""

_log = logging.getLogger(__name__)


class GpuSampler:
    """Keeps the latest figures of the GPUs that it is told of.

    Args:
        interval_s: seconds between samples.
        load: gives NVML's bindings; raises NvmlUnavailable.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        *,
        interval_s: float = INTERVAL_S,
        load: Callable[[], ModuleType] = load_nvml,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._interval_s = interval_s
        self._load = load
        self._clock = clock
        self._pci_bus_ids: dict[str, None] = {}
        self._sample: tuple[int, tuple[GpuFigures, ...]] = (0, ())
        self._has_work = threading.Event()
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, pci_bus_id: str) -> None:
        """Samples one more GPU from now on; may be called on any thread, and again.

        Args:
            pci_bus_id: as CUDA gives it, such as `0000:3B:00.0`.
        """
        self._pci_bus_ids[pci_bus_id] = None
        self._has_work.set()

    def figures(self) -> tuple[GpuFigures, ...]:
        """The latest sample of each GPU, nothing if it is too old; may be called on any thread."""
        sampled_ns, figures = self._sample
        return figures if self._clock() - sampled_ns <= MAX_AGE_NS else ()

    def start(self) -> None:
        """Starts the thread, which sleeps until there is a GPU to watch."""
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the sample that it is at, or leaves it behind if NVML hangs; idempotent."""
        self._is_stopping.set()
        self._has_work.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None

    def _run(self) -> None:
        self._has_work.wait()
        if self._is_stopping.is_set():
            return
        try:
            nvml = self._load()
        except NvmlUnavailable as error:
            _log.info("there are no metrics of the GPU: %s", error)
            return
        try:
            self._sample_until_stopped(nvml)
            nvml.nvmlShutdown()
        except Exception as error:
            _log.info("the metrics of the GPU end here", exc_info=error)
        self._sample = (0, ())

    def _sample_until_stopped(self, nvml: ModuleType) -> None:
        gpus: dict[str, NvmlGpu | None] = {}
        while not self._is_stopping.is_set():
            for pci_bus_id in tuple(self._pci_bus_ids):
                if pci_bus_id not in gpus:
                    gpus[pci_bus_id] = _opened(nvml, pci_bus_id)
            figures = tuple(gpu.read() for gpu in gpus.values() if gpu is not None)
            self._sample = (self._clock(), figures)
            self._is_stopping.wait(self._interval_s)
        for gpu in gpus.values():
            if gpu is not None:
                gpu.close()


def _opened(nvml: ModuleType, pci_bus_id: str) -> NvmlGpu | None:
    try:
        return NvmlGpu(nvml, pci_bus_id)
    except nvml.NVMLError as error:
        _log.info("there are no metrics of the GPU at %s: NVML: %s", pci_bus_id, error)
        return None

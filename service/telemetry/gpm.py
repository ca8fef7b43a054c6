"""NVML's GPU performance monitoring (GPM): how busy the parts of a GPU were between two samples. Hopper and later."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from service.telemetry.gpu_figures import ClockEvent, Reading

_PERCENT = 1 / 100
_BYTES_PER_MIB = 1 << 20

_METRICS = (
    ("NVML_GPM_METRIC_SM_UTIL", Reading.SM_ACTIVITY_RATIO, _PERCENT),
    ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", Reading.TENSOR_ACTIVITY_RATIO, _PERCENT),
    ("NVML_GPM_METRIC_DRAM_BW_UTIL", Reading.MEMORY_BANDWIDTH_RATIO, _PERCENT),
    ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", Reading.PCIE_SENT_BYTES_PER_S, _BYTES_PER_MIB),
    ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", Reading.PCIE_RECEIVED_BYTES_PER_S, _BYTES_PER_MIB),
)


class Gpm:
    """Two samples of one GPU, of which each reading replaces the older. Used by one thread.

    Args:
        nvml: the initialised bindings.
        handle: the GPU.
    """

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._samples: list[Any] = []
        self._is_first = True

    def read(self) -> dict[Reading | ClockEvent, float]:
        """Averages since the reading before; nothing at the first.

        Raises:
            NVMLError: the GPU, or whoever asks, has no GPM.
        """
        nvml = self._nvml
        if not self._samples:
            if not nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
            self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        was_first, self._is_first = self._is_first, True
        nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
        self._samples.reverse()
        self._is_first = False
        return {} if was_first else self._between(*self._samples)

    def close(self) -> None:
        """Frees the samples; idempotent."""
        samples, self._samples = self._samples, []
        for sample in samples:
            self._nvml.nvmlGpmSampleFree(sample)

    def _between(self, older: Any, newer: Any) -> dict[Reading | ClockEvent, float]:
        nvml = self._nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = older, newer
        for metric, (name, _, _) in zip(request.metrics, _METRICS, strict=False):
            metric.metricId = getattr(nvml, name)
        nvml.nvmlGpmMetricsGet(request)
        return {
            reading: metric.value * unit
            for metric, (_, reading, unit) in zip(request.metrics, _METRICS, strict=False)
            if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value)
        }

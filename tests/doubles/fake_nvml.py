"""The part of nvidia-ml-py's `pynvml` that the server uses, on GPUs that the test describes.

It fails as the real one does: by `NVMLError` and its subclasses, which carry a code; before `nvmlInit` and after
`nvmlShutdown` every call is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

ERRORS = {
    "UNINITIALIZED": (1, "Uninitialized"),
    "INVALID_ARGUMENT": (2, "Invalid Argument"),
    "NOT_SUPPORTED": (3, "Not Supported"),
    "NO_PERMISSION": (4, "Insufficient Permissions"),
    "NOT_FOUND": (6, "Not Found"),
    "DRIVER_NOT_LOADED": (9, "Driver Not Loaded"),
    "TIMEOUT": (10, "Timeout"),
    "LIBRARY_NOT_FOUND": (12, "NVML Shared Library Not Found"),
    "FUNCTION_NOT_FOUND": (13, "Function Not Found"),
    "GPU_IS_LOST": (15, "GPU is lost"),
    "ARGUMENT_VERSION_MISMATCH": (25, "Argument version mismatch"),
    "DEPRECATED": (26, "Deprecated"),
}
WORDS = dict(ERRORS.values())

EVENT_BITS = {
    "nvmlClocksEventReasonGpuIdle": 0x1,
    "nvmlClocksEventReasonApplicationsClocksSetting": 0x2,
    "nvmlClocksEventReasonSwPowerCap": 0x4,
    "nvmlClocksEventReasonHwSlowdown": 0x8,
    "nvmlClocksEventReasonSyncBoost": 0x10,
    "nvmlClocksEventReasonSwThermalSlowdown": 0x20,
    "nvmlClocksEventReasonHwThermalSlowdown": 0x40,
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": 0x80,
    "nvmlClocksEventReasonDisplayClockSetting": 0x100,
}
GPM_METRICS = {
    "NVML_GPM_METRIC_SM_UTIL": 2,
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL": 5,
    "NVML_GPM_METRIC_DRAM_BW_UTIL": 10,
    "NVML_GPM_METRIC_PCIE_TX_PER_SEC": 20,
    "NVML_GPM_METRIC_PCIE_RX_PER_SEC": 21,
}
GPM_CAPACITY = 98


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return WORDS[self.value]


class NVMLError_FunctionNotFound(NVMLError):
    pass


@dataclass
class FakeGpu:
    """Answers in NVML's units: percent, bytes, milliwatts, millijoules, degrees Celsius, MHz, MiB/s."""

    uuid: str = "GPU-1"
    answers: dict[str, object] = field(
        default_factory=lambda: {
            "nvmlDeviceGetName": "Fake H200",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50, memory=25),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1000, free=600, used=400),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetTotalEnergyConsumption": 9_000,
            "nvmlDeviceGetTemperature": {0: 41},
            "nvmlDeviceGetClockInfo": {1: 1700, 2: 3000},
            "nvmlDeviceGetMaxClockInfo": {1: 1980, 2: 3201},
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)],
        }
    )
    activity: dict[int, float] = field(default_factory=lambda: {2: 80.0, 5: 40.0, 10: 30.0, 20: 2.0, 21: 8.0})
    gpm_is_supported: bool = True


class FakeNvml(ModuleType):
    """Attributes that tests use: `gpus` by PCI bus id, `failures` by function, `calls`, living `gpm_samples`."""

    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_GPM_METRICS_GET_VERSION = 1
    NVMLError = NVMLError
    NVMLError_FunctionNotFound = NVMLError_FunctionNotFound

    def __init__(self, gpus: dict[str, FakeGpu]) -> None:
        super().__init__("pynvml")
        self.gpus = gpus
        self.failures: dict[str, str] = {}
        self.calls: list[str] = []
        self.open_count = 0
        self.gpm_samples = 0
        for name, (value, _) in ERRORS.items():
            setattr(self, f"NVML_ERROR_{name}", value)
        for name, value in (EVENT_BITS | GPM_METRICS).items():
            setattr(self, name, value)
        for name in FakeGpu().answers:
            setattr(self, name, self._answering(name))

    def error(self, name: str) -> NVMLError:
        kind = NVMLError_FunctionNotFound if name == "FUNCTION_NOT_FOUND" else NVMLError
        return kind(ERRORS[name][0])

    def nvmlInit(self) -> None:
        self._begin("nvmlInit", needs_init=False)
        self.open_count += 1

    def nvmlShutdown(self) -> None:
        self._begin("nvmlShutdown")
        self.open_count -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._begin("nvmlSystemGetDriverVersion")
        return "580.65.06"

    def nvmlDeviceGetHandleByPciBusId(self, pci_bus_id: str) -> FakeGpu:
        self._begin("nvmlDeviceGetHandleByPciBusId")
        if pci_bus_id not in self.gpus:
            raise self.error("NOT_FOUND")
        return self.gpus[pci_bus_id]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        self._begin("nvmlDeviceGetUUID")
        return gpu.uuid

    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> SimpleNamespace:
        self._begin("nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(version=1, isSupportedDevice=int(gpu.gpm_is_supported))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        self._begin("nvmlGpmSampleAlloc")
        self.gpm_samples += 1
        return SimpleNamespace(taken=0, gpu=None)

    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: SimpleNamespace) -> SimpleNamespace:
        self._begin("nvmlGpmSampleGet")
        sample.taken, sample.gpu = len(self.calls), gpu
        return sample

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        self._begin("nvmlGpmSampleFree")
        self.gpm_samples -= 1

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(GPM_CAPACITY)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)

    def nvmlGpmMetricsGet(self, request: SimpleNamespace) -> SimpleNamespace:
        self._begin("nvmlGpmMetricsGet")
        if request.version != self.NVML_GPM_METRICS_GET_VERSION:
            raise self.error("ARGUMENT_VERSION_MISMATCH")
        if not 0 < request.sample1.taken < request.sample2.taken:
            raise self.error("INVALID_ARGUMENT")
        for metric in request.metrics[: request.numMetrics]:
            if metric.metricId in request.sample2.gpu.activity:
                metric.value = request.sample2.gpu.activity[metric.metricId]
            else:
                metric.nvmlReturn = ERRORS["NOT_SUPPORTED"][0]
        return request

    def _answering(self, name: str):
        def answer(gpu: FakeGpu, *arguments: int) -> object:
            self._begin(name)
            found = gpu.answers[name]
            return found[arguments[0]] if isinstance(found, dict) else found

        return answer

    def _begin(self, name: str, *, needs_init: bool = True) -> None:
        self.calls.append(name)
        if needs_init and not self.open_count:
            raise self.error("UNINITIALIZED")
        if name in self.failures:
            raise self.error(self.failures[name])

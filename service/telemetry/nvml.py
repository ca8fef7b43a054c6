"""Asks one GPU through NVML, by the bindings of nvidia-ml-py; every call may take a millisecond or so.

NVML knows neither CUDA's contexts nor its streams, and whoever asks has a thread of its own: a graph that another
thread captures in thread-local mode is not disturbed.

The rate of transfers over PCIe is read from GPM alone: NVML's other call for it watches the bus for 20 ms, each way.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

from service.requests import Clock
from service.telemetry.gpm import Gpm
from service.telemetry.gpu_figures import ClockEvent, GpuFigures, Reading

Handle: TypeAlias = Any
"""A device of NVML, opaque."""

Query: TypeAlias = Callable[[], Mapping[Reading | ClockEvent, float]]

_HERTZ_PER_MHZ = 1_000_000

_EVENT_BITS = {
    ClockEvent.IDLE: "nvmlClocksEventReasonGpuIdle",
    ClockEvent.APPLICATION_CLOCKS: "nvmlClocksEventReasonApplicationsClocksSetting",
    ClockEvent.SW_POWER_CAP: "nvmlClocksEventReasonSwPowerCap",
    ClockEvent.HW_SLOWDOWN: "nvmlClocksEventReasonHwSlowdown",
    ClockEvent.SYNC_BOOST: "nvmlClocksEventReasonSyncBoost",
    ClockEvent.SW_THERMAL_SLOWDOWN: "nvmlClocksEventReasonSwThermalSlowdown",
    ClockEvent.HW_THERMAL_SLOWDOWN: "nvmlClocksEventReasonHwThermalSlowdown",
    ClockEvent.HW_POWER_BRAKE: "nvmlClocksEventReasonHwPowerBrakeSlowdown",
    ClockEvent.DISPLAY_CLOCK: "nvmlClocksEventReasonDisplayClockSetting",
}

_log = logging.getLogger(__name__)


class NvmlUnavailable(Exception):
    """There is no NVML here; the message says why, and how to get it."""


def load_nvml() -> ModuleType:
    """The bindings, initialised; `nvmlShutdown` ends their use.

    Raises:
        NvmlUnavailable: the bindings or the driver are missing.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlUnavailable("nvidia-ml-py is not installed; pip install -e '.[gpu]'") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {error}") from error
    return nvml


class NvmlGpu:
    """One GPU. Used by one thread.

    Args:
        nvml: the initialised bindings.
        pci_bus_id: where the GPU is, such as `0000:3B:00.0`.
        clock: monotonic nanoseconds.

    Raises:
        NVMLError: there is no such GPU, or it may not be asked.
    """

    def __init__(self, nvml: ModuleType, pci_bus_id: str, *, clock: Clock = time.monotonic_ns) -> None:
        self._nvml = nvml
        self._clock = clock
        self._sampling_ns = 0
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        self._uuid = str(nvml.nvmlDeviceGetUUID(handle))
        self._name = str(nvml.nvmlDeviceGetName(handle))
        self._driver = str(nvml.nvmlSystemGetDriverVersion())
        self._gpm = Gpm(nvml, handle)
        self._queries = {**_queries(nvml, handle), "activity": self._gpm.read}
        self._failed: set[str] = set()

    def read(self) -> GpuFigures:
        """All that the GPU tells now. A query that it does not support is not made again."""
        begun = self._clock()
        answers: dict[Reading | ClockEvent, float] = {}
        for name in tuple(self._queries):
            try:
                answers.update(self._queries[name]())
            except self._nvml.NVMLError as error:
                self._note(name, error)
        self._sampling_ns += self._clock() - begun
        return GpuFigures(
            uuid=self._uuid,
            name=self._name,
            driver=self._driver,
            readings={key: value for key, value in answers.items() if isinstance(key, Reading)},
            clock_events={key: bool(value) for key, value in answers.items() if isinstance(key, ClockEvent)},
            sampling_ns=self._sampling_ns,
        )

    def close(self) -> None:
        """Frees what NVML holds for it; idempotent."""
        self._gpm.close()

    def _note(self, name: str, error: Exception) -> None:
        """Says once what a GPU does not tell, and drops the query if asking again would be in vain."""
        is_final = error.value in _final_codes(self._nvml)  # type: ignore[attr-defined]
        if is_final:
            del self._queries[name]
        if is_final or name not in self._failed:
            self._failed.add(name)
            _log.info("%s does not tell its %s%s: %s", self._name, name, "" if is_final else " now", error)


def _final_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Errors that stay; a timeout, or a GPU that is being reset, does not."""
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_DEPRECATED,
    )


def _queries(nvml: ModuleType, handle: Handle) -> dict[str, Query]:
    """What to ask, each by itself, so that one that fails costs only its own figures; by the words of the log."""
    sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM

    def scaled(reading: Reading, unit: float, function: str, *arguments: int) -> Query:
        return lambda: {reading: getattr(nvml, function)(handle, *arguments) * unit}

    return {
        "utilization": partial(_utilization, nvml, handle),
        "memory": partial(_memory, nvml, handle),
        "power": scaled(Reading.POWER_WATTS, 1e-3, "nvmlDeviceGetPowerUsage"),
        "power limit": scaled(Reading.POWER_LIMIT_WATTS, 1e-3, "nvmlDeviceGetEnforcedPowerLimit"),
        "energy": scaled(Reading.ENERGY_JOULES, 1e-3, "nvmlDeviceGetTotalEnergyConsumption"),
        "temperature": scaled(Reading.TEMPERATURE_CELSIUS, 1, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "SM clock": scaled(Reading.SM_CLOCK_HERTZ, _HERTZ_PER_MHZ, "nvmlDeviceGetClockInfo", sm),
        "memory clock": scaled(Reading.MEMORY_CLOCK_HERTZ, _HERTZ_PER_MHZ, "nvmlDeviceGetClockInfo", memory),
        "largest SM clock": scaled(Reading.MAX_SM_CLOCK_HERTZ, _HERTZ_PER_MHZ, "nvmlDeviceGetMaxClockInfo", sm),
        "largest memory clock": scaled(
            Reading.MAX_MEMORY_CLOCK_HERTZ, _HERTZ_PER_MHZ, "nvmlDeviceGetMaxClockInfo", memory
        ),
        "clock events": partial(_clock_events, nvml, handle),
        "processes": partial(_processes, nvml, handle),
    }


def _utilization(nvml: ModuleType, handle: Handle) -> dict[Reading | ClockEvent, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {Reading.UTILIZATION_RATIO: rates.gpu / 100, Reading.MEMORY_UTILIZATION_RATIO: rates.memory / 100}


def _memory(nvml: ModuleType, handle: Handle) -> dict[Reading | ClockEvent, float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {Reading.MEMORY_USED_BYTES: memory.used, Reading.MEMORY_TOTAL_BYTES: memory.total}


def _processes(nvml: ModuleType, handle: Handle) -> dict[Reading | ClockEvent, float]:
    """Nothing where this process, which computes there, is not among them.

    In a container the driver may name processes by ids that are unknown inside, or show none.
    """
    ids = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    own = os.getpid()
    return {Reading.OTHER_PROCESSES: len(ids) - 1} if own in ids else {}


def _clock_events(nvml: ModuleType, handle: Handle) -> dict[Reading | ClockEvent, float]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError_FunctionNotFound:  # a driver before 535 has it by its former name
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {event: bool(bits & getattr(nvml, bit)) for event, bit in _EVENT_BITS.items()}

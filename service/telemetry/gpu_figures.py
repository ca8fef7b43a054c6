"""What is known of one GPU at one moment, in base units, frozen. A figure that the GPU does not tell is absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Reading(Enum):
    """A number that a GPU may tell; ratios lie between 0 and 1."""

    UTILIZATION_RATIO = auto()
    MEMORY_UTILIZATION_RATIO = auto()
    MEMORY_USED_BYTES = auto()
    MEMORY_TOTAL_BYTES = auto()
    POWER_WATTS = auto()
    POWER_LIMIT_WATTS = auto()
    ENERGY_JOULES = auto()
    TEMPERATURE_CELSIUS = auto()
    SM_CLOCK_HERTZ = auto()
    MEMORY_CLOCK_HERTZ = auto()
    MAX_SM_CLOCK_HERTZ = auto()
    MAX_MEMORY_CLOCK_HERTZ = auto()
    SM_ACTIVITY_RATIO = auto()
    TENSOR_ACTIVITY_RATIO = auto()
    MEMORY_BANDWIDTH_RATIO = auto()
    PCIE_SENT_BYTES_PER_S = auto()
    PCIE_RECEIVED_BYTES_PER_S = auto()
    OTHER_PROCESSES = auto()
    """How many processes compute on it beside this one."""


class ClockEvent(Enum):
    """What holds the clocks below their maximum; the value is the metrics' label. NVML's clocks event reasons."""

    IDLE = "idle"
    APPLICATION_CLOCKS = "application_clocks"
    SW_POWER_CAP = "sw_power_cap"
    HW_SLOWDOWN = "hw_slowdown"
    SYNC_BOOST = "sync_boost"
    SW_THERMAL_SLOWDOWN = "sw_thermal_slowdown"
    HW_THERMAL_SLOWDOWN = "hw_thermal_slowdown"
    HW_POWER_BRAKE = "hw_power_brake"
    DISPLAY_CLOCK = "display_clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """One GPU.

    Attributes:
        uuid: NVML's name of it, unique in the world.
        name: its kind, such as `NVIDIA H200`.
        driver: version of the driver.
        readings: the numbers that it told.
        clock_events: whether each holds its clocks down now; empty if it does not tell.
        sampling_ns: time spent on asking it, since the first time.
    """

    uuid: str
    name: str
    driver: str
    readings: Mapping[Reading, float]
    clock_events: Mapping[ClockEvent, bool]
    sampling_ns: int

"""The metrics of the GPUs, declared as data like those in `metrics.py`, which lists them."""

from __future__ import annotations

from service.telemetry.metric_spec import MetricKind, MetricSpec

GPU = ("gpu_uuid",)


def _gpu(name: str, text: str, *labels: str, kind: MetricKind = MetricKind.GAUGE) -> MetricSpec:
    return MetricSpec(f"inferlane_gpu_{name}", kind, text, (*GPU, *labels))


GPU_INFO = _gpu("info", "1 for each GPU that a model uses; its labels name the GPU and its driver.", "name", "driver")
GPU_UTILIZATION = _gpu(
    "utilization_ratio",
    "Share of the time in which at least one kernel ran, however little of the GPU it used.",
)
GPU_MEMORY_UTILIZATION = _gpu(
    "memory_utilization_ratio", "Share of the time in which the GPU's memory was read or written."
)
GPU_MEMORY_USED = _gpu(
    "memory_used_bytes", "Memory in use, whoever uses it, with what the driver keeps back: total minus free."
)
GPU_MEMORY_TOTAL = _gpu("memory_total_bytes", "Memory of the GPU.")
GPU_POWER = _gpu("power_watts", "Power that the GPU draws.")
GPU_POWER_LIMIT = _gpu("power_limit_watts", "Power at which its clocks are lowered.")
GPU_ENERGY = _gpu(
    "energy_joules_total", "Energy that the GPU has used since its driver was loaded.", kind=MetricKind.COUNTER
)
GPU_TEMPERATURE = _gpu("temperature_celsius", "Temperature of the GPU's core.")
GPU_CLOCK = _gpu("clock_hertz", "Clock of the SMs and of the memory.", "clock")
GPU_MAX_CLOCK = _gpu("max_clock_hertz", "The highest that either clock can be.", "clock")
GPU_CLOCK_EVENT = _gpu(
    "clock_event", "1 while a reason holds the clocks below their highest, else 0; `idle` is no fault.", "reason"
)
GPU_SM_ACTIVITY = _gpu(
    "sm_activity_ratio", "Share of the SMs that were busy, on average between two samples (Hopper and later)."
)
GPU_TENSOR_ACTIVITY = _gpu(
    "tensor_activity_ratio", "Share of the time in which the SMs' tensor cores worked (Hopper and later)."
)
GPU_MEMORY_BANDWIDTH = _gpu(
    "memory_bandwidth_ratio", "Memory bandwidth used, as a share of the highest in theory (Hopper and later)."
)
GPU_PCIE = _gpu(
    "pcie_bytes_per_second", "Traffic over PCIe that the GPU sends and receives (Hopper and later).", "direction"
)
GPU_SAMPLING = _gpu(
    "sampling_seconds_total", "Time that the server spent on asking the GPU for these figures.", kind=MetricKind.COUNTER
)

GPU_OWN = (
    GPU_INFO,
    GPU_UTILIZATION,
    GPU_MEMORY_UTILIZATION,
    GPU_MEMORY_USED,
    GPU_MEMORY_TOTAL,
    GPU_POWER,
    GPU_POWER_LIMIT,
    GPU_ENERGY,
    GPU_TEMPERATURE,
    GPU_CLOCK,
    GPU_MAX_CLOCK,
    GPU_CLOCK_EVENT,
    GPU_SM_ACTIVITY,
    GPU_TENSOR_ACTIVITY,
    GPU_MEMORY_BANDWIDTH,
    GPU_PCIE,
    GPU_SAMPLING,
)


def _triton(name: str, text: str, kind: MetricKind = MetricKind.GAUGE) -> MetricSpec:
    return MetricSpec(f"nv_{name}", kind, text, GPU)


TRITON_GPU_UTILIZATION = _triton("gpu_utilization", "Share of the time in which at least one kernel ran, 0 to 1.")
TRITON_GPU_MEMORY_TOTAL = _triton("gpu_memory_total_bytes", "Memory of the GPU.")
TRITON_GPU_MEMORY_USED = _triton("gpu_memory_used_bytes", "Memory in use.")
TRITON_GPU_POWER = _triton("gpu_power_usage", "Power that the GPU draws, in watts.")
TRITON_GPU_POWER_LIMIT = _triton("gpu_power_limit", "Power at which its clocks are lowered, in watts.")
TRITON_GPU_ENERGY = _triton(
    "energy_consumption", "Energy used since the driver was loaded, in joules.", MetricKind.UNKNOWN
)

GPU_TRITON = (
    TRITON_GPU_UTILIZATION,
    TRITON_GPU_MEMORY_TOTAL,
    TRITON_GPU_MEMORY_USED,
    TRITON_GPU_POWER,
    TRITON_GPU_POWER_LIMIT,
    TRITON_GPU_ENERGY,
)

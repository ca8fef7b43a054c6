"""Metric families of the GPUs that models use; a figure that a GPU does not tell has no sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from service.telemetry import gpu_metrics
from service.telemetry.families import number_family
from service.telemetry.gpu_figures import GpuFigures, Reading
from service.telemetry.metric_spec import MetricSpec
from service.units import NS_PER_S

_Labelled = tuple[tuple[tuple[str, ...], Reading], ...]
"""Labels beside the GPU's, and the reading that they stand for."""

_READINGS: tuple[tuple[MetricSpec, _Labelled], ...] = (
    (gpu_metrics.GPU_UTILIZATION, (((), Reading.UTILIZATION_RATIO),)),
    (gpu_metrics.GPU_MEMORY_UTILIZATION, (((), Reading.MEMORY_UTILIZATION_RATIO),)),
    (gpu_metrics.GPU_MEMORY_USED, (((), Reading.MEMORY_USED_BYTES),)),
    (gpu_metrics.GPU_MEMORY_TOTAL, (((), Reading.MEMORY_TOTAL_BYTES),)),
    (gpu_metrics.GPU_POWER, (((), Reading.POWER_WATTS),)),
    (gpu_metrics.GPU_POWER_LIMIT, (((), Reading.POWER_LIMIT_WATTS),)),
    (gpu_metrics.GPU_ENERGY, (((), Reading.ENERGY_JOULES),)),
    (gpu_metrics.GPU_TEMPERATURE, (((), Reading.TEMPERATURE_CELSIUS),)),
    (
        gpu_metrics.GPU_CLOCK,
        ((("sm",), Reading.SM_CLOCK_HERTZ), (("memory",), Reading.MEMORY_CLOCK_HERTZ)),
    ),
    (
        gpu_metrics.GPU_MAX_CLOCK,
        ((("sm",), Reading.MAX_SM_CLOCK_HERTZ), (("memory",), Reading.MAX_MEMORY_CLOCK_HERTZ)),
    ),
    (gpu_metrics.GPU_SM_ACTIVITY, (((), Reading.SM_ACTIVITY_RATIO),)),
    (gpu_metrics.GPU_TENSOR_ACTIVITY, (((), Reading.TENSOR_ACTIVITY_RATIO),)),
    (gpu_metrics.GPU_MEMORY_BANDWIDTH, (((), Reading.MEMORY_BANDWIDTH_RATIO),)),
    (
        gpu_metrics.GPU_PCIE,
        ((("sent",), Reading.PCIE_SENT_BYTES_PER_S), (("received",), Reading.PCIE_RECEIVED_BYTES_PER_S)),
    ),
)
_TRITON_READINGS: tuple[tuple[MetricSpec, _Labelled], ...] = (
    (gpu_metrics.TRITON_GPU_UTILIZATION, (((), Reading.UTILIZATION_RATIO),)),
    (gpu_metrics.TRITON_GPU_MEMORY_TOTAL, (((), Reading.MEMORY_TOTAL_BYTES),)),
    (gpu_metrics.TRITON_GPU_MEMORY_USED, (((), Reading.MEMORY_USED_BYTES),)),
    (gpu_metrics.TRITON_GPU_POWER, (((), Reading.POWER_WATTS),)),
    (gpu_metrics.TRITON_GPU_POWER_LIMIT, (((), Reading.POWER_LIMIT_WATTS),)),
    (gpu_metrics.TRITON_GPU_ENERGY, (((), Reading.ENERGY_JOULES),)),
)


def gpu_families(gpus: Sequence[GpuFigures]) -> Iterator[Metric]:
    """Families of every metric in `gpu_metrics.GPU_OWN`."""
    yield number_family(gpu_metrics.GPU_INFO, (((gpu.uuid, gpu.name, gpu.driver), 1) for gpu in gpus))
    for spec, readings in _READINGS:
        yield _reading_family(spec, readings, gpus)
    yield number_family(
        gpu_metrics.GPU_CLOCK_EVENT,
        (((gpu.uuid, event.value), int(holds)) for gpu in gpus for event, holds in gpu.clock_events.items()),
    )
    yield number_family(gpu_metrics.GPU_SAMPLING, (((gpu.uuid,), gpu.sampling_ns / NS_PER_S) for gpu in gpus))


def triton_gpu_families(gpus: Sequence[GpuFigures]) -> Iterator[Metric]:
    """Families of every metric in `gpu_metrics.GPU_TRITON`."""
    for spec, readings in _TRITON_READINGS:
        yield _reading_family(spec, readings, gpus)


def _reading_family(spec: MetricSpec, readings: _Labelled, gpus: Sequence[GpuFigures]) -> Metric:
    return number_family(
        spec,
        (
            ((gpu.uuid, *labels), gpu.readings[reading])
            for gpu in gpus
            for labels, reading in readings
            if reading in gpu.readings
        ),
    )

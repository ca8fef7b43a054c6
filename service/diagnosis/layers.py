"""Roofline: what bounds each layer, from its FLOPs, its bytes and the peaks that this device was seen to reach.

Promises: what is not known stays unknown, and the share of the time that is known is stated. A layer's times are
scaled to the span of an execution without the profiler, whose own events lengthen every layer.

    time at the roof  t_roof = max(FLOPs / peak of the type, bytes / peak bandwidth)
    efficiency        e = t_roof / t

Cut-offs: 0.6 and 10 points are those of Nsight Compute's SpeedOfLight rule (at least 60 % of a roof is a bound of that
kind, a difference of less than 10 points is balanced); 5 us, 20 layers and 20 % are those of NVIDIA's
trt-perf-analysis for "many tiny kernels".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from service.buckets import Bucket
from service.telemetry.snapshot_device import LayerFigures, LayerProfile
from service.telemetry.snapshot_probes import Peaks

EFFICIENT = 0.6
BALANCED_WITHIN = 0.1
FLOOR_KERNELS = 2.0
"""A layer of less than this many empty kernels' time is bound by the time to launch one, whatever it computes."""

TINY_S = 5e-6
TINY_COUNT = 20
TINY_SHARE = 0.2


class LayerClass(Enum):
    """What bounds a layer."""

    COMPUTE = "compute"
    MEMORY = "memory"
    BALANCED = "balanced"
    LATENCY_FLOOR = "latency floor"
    INEFFICIENT = "inefficient"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedLayer:
    """A layer and its place under the roof.

    Attributes:
        figures: what its profiler and description tell.
        time_s: scaled to the span.
        share: of the span.
        kind: what bounds it.
        efficiency: e; None where the roof is not known.
        roof_s: t_roof; likewise.
        intensity: FLOPs per byte; None where one of them is not known.
        is_cache_resident: whether it moves bytes faster than memory can: its bytes are an upper bound then.
    """

    figures: LayerFigures
    time_s: float
    share: float
    kind: LayerClass
    efficiency: float | None
    roof_s: float | None
    intensity: float | None
    is_cache_resident: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """The layers of one bucket.

    Attributes:
        bucket: whose.
        span_s: what one execution takes.
        scale: span over the sum of the profiled times; 1 where layers overlap.
        layers: in the order of execution.
    """

    bucket: Bucket
    span_s: float
    scale: float
    layers: tuple[ClassifiedLayer, ...]

    @property
    def coverage(self) -> float:
        """Share of the time whose bound is known."""
        return 1.0 - self.share_of(LayerClass.UNKNOWN)

    def share_of(self, *kinds: LayerClass) -> float:
        """Share of the time in layers that are bound so."""
        return sum(layer.share for layer in self.layers if layer.kind in kinds)

    @property
    def reformat_share(self) -> float:
        """Share of the time in layers that only change type or layout."""
        return sum(layer.share for layer in self.layers if layer.figures.is_reformat)

    @property
    def without_tensor_cores(self) -> tuple[ClassifiedLayer, ...]:
        """Matrix products whose tactics say that they leave the tensor cores idle."""
        return tuple(
            layer for layer in self.layers if layer.figures.is_matrix_product and layer.figures.is_tensor_core is False
        )

    @property
    def tiny_layers(self) -> tuple[ClassifiedLayer, ...]:
        """Layers of less than `TINY_S`."""
        return tuple(layer for layer in self.layers if layer.time_s < TINY_S)

    @property
    def has_many_tiny_layers(self) -> bool:
        """Whether tiny layers are many, and together much."""
        tiny = self.tiny_layers
        return len(tiny) >= TINY_COUNT and sum(layer.share for layer in tiny) >= TINY_SHARE

    def excess_share(self, kind: LayerClass) -> float:
        """Share of the time that layers of this kind spend above their roof: the most that they could lose."""
        excess_s = sum(
            layer.time_s - layer.roof_s for layer in self.layers if layer.kind is kind and layer.roof_s is not None
        )
        return excess_s / self.span_s


def classify(profile: LayerProfile, peaks: Peaks | None) -> LayerTable:
    """Places every layer of a bucket under the roof; all are unknown without peaks."""
    total_s = sum(layer.time_s for layer in profile.layers)
    scale = profile.span_s / total_s if total_s > 0 and not profile.are_overlapping else 1.0
    span_s = profile.span_s if profile.span_s > 0 else total_s
    layers = tuple(_classified(layer, layer.time_s * scale, span_s, peaks) for layer in profile.layers)
    return LayerTable(bucket=profile.bucket, span_s=span_s, scale=scale, layers=layers)


def _classified(layer: LayerFigures, time_s: float, span_s: float, peaks: Peaks | None) -> ClassifiedLayer:
    compute_s, memory_s = _roofs(layer, peaks)
    kind, roof_s = LayerClass.UNKNOWN, None
    if peaks is not None and time_s > 0 and compute_s is not None and memory_s is not None:
        roof_s = max(compute_s, memory_s)
        kind = _bound(time_s, compute_s, memory_s, peaks.empty_kernel_s)
    elif peaks is not None and 0 < time_s < FLOOR_KERNELS * peaks.empty_kernel_s:
        kind = LayerClass.LATENCY_FLOOR
    return ClassifiedLayer(
        figures=layer,
        time_s=time_s,
        share=time_s / span_s if span_s > 0 else 0.0,
        kind=kind,
        efficiency=None if roof_s is None or kind is LayerClass.UNKNOWN else roof_s / time_s,
        roof_s=None if kind is LayerClass.UNKNOWN else roof_s,
        intensity=layer.flops / layer.nbytes if layer.flops is not None and layer.nbytes else None,
        is_cache_resident=memory_s is not None and memory_s > time_s > 0,
    )


def _roofs(layer: LayerFigures, peaks: Peaks | None) -> tuple[float | None, float | None]:
    """Seconds at the compute and at the memory roof; None where figures or peaks are missing."""
    if peaks is None:
        return None, None
    memory_s = None if layer.nbytes is None else layer.nbytes / peaks.bytes_per_s
    if layer.flops is None:
        return None, memory_s
    if layer.flops == 0:
        return 0.0, memory_s
    peak = _peak(layer, peaks.flops_per_s)
    return (layer.flops / peak if peak else None), memory_s


def _peak(layer: LayerFigures, flops_per_s: Mapping[str, float]) -> float | None:
    return flops_per_s.get(layer.dtype)


def _bound(time_s: float, compute_s: float, memory_s: float, empty_kernel_s: float) -> LayerClass:
    if compute_s > time_s * (1.0 + BALANCED_WITHIN):
        return LayerClass.UNKNOWN  # faster than the device can compute: its FLOPs or its type must be wrong
    if max(compute_s, memory_s) < EFFICIENT * time_s:
        return LayerClass.LATENCY_FLOOR if time_s < FLOOR_KERNELS * empty_kernel_s else LayerClass.INEFFICIENT
    if abs(compute_s - memory_s) < BALANCED_WITHIN * time_s:
        return LayerClass.BALANCED
    return LayerClass.COMPUTE if compute_s > memory_s else LayerClass.MEMORY

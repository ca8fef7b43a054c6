"""What the diagnosis reads of a trace: each layer with its time, FLOPs, bytes and origin. Pure."""

from __future__ import annotations

from service.buckets import Bucket
from service.layers.flops import flops
from service.layers.tactics import could_use_tensor_cores, is_aligned, uses_tensor_cores
from service.layers.traffic import nbytes
from service.runtime.layer_trace import LayerTrace, OperationKind, TracedLayer
from service.telemetry.snapshot_device import LayerFigures, LayerProfile

_REFORMATS = frozenset({OperationKind.REFORMAT, OperationKind.QUANTIZE})
"""A Q or DQ that stands alone moves every byte once more and computes nothing that the model asked for."""


def layer_profile(bucket: Bucket, trace: LayerTrace) -> LayerProfile:
    """The layers of one bucket, in the order of execution, those that do nothing included."""
    return LayerProfile(
        bucket=bucket,
        span_s=trace.span_s,
        layers=tuple(map(layer_figures, trace.layers)),
        are_overlapping=trace.are_overlapping,
    )


def layer_figures(layer: TracedLayer) -> LayerFigures:
    """One layer with what follows from what it is."""
    operation = layer.operation
    return LayerFigures(
        name=operation.name,
        kind=operation.word,
        time_s=layer.time_s,
        flops=flops(operation),
        nbytes=nbytes(operation),
        dtype=operation.dtype,
        tactic=operation.tactic,
        origin=operation.origin,
        is_reformat=operation.kind in _REFORMATS,
        is_matrix_product=could_use_tensor_cores(operation),
        is_tensor_core=uses_tensor_cores(operation),
        is_aligned=is_aligned(operation),
    )


def known_share(profile: LayerProfile) -> float:
    """Share of the layers' time whose FLOPs and bytes are both known; 0 without layers."""
    total_s = sum(layer.time_s for layer in profile.layers)
    known_s = sum(layer.time_s for layer in profile.layers if layer.flops is not None and layer.nbytes is not None)
    return known_s / total_s if total_s > 0 else 0.0

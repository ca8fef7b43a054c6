"""From a trace to what the diagnosis classifies."""

from __future__ import annotations

import pytest

from service.buckets import Bucket
from service.diagnosis.layers import LayerClass, classify
from service.layers.figures import known_share, layer_profile
from service.runtime.layer_trace import LayerTrace, Operand, Operation, OperationKind, TracedLayer
from service.telemetry.snapshot_probes import Peaks

A, B = Operand((1024, 1024), "FP16"), Operand((1024, 1024), "FP32")


def traced(kind: OperationKind, seconds: float, inputs: tuple[Operand, ...] = (A,), **rest: object) -> TracedLayer:
    operation = Operation(name=kind.value, word=kind.name, kind=kind, inputs=inputs, outputs=(A,), dtype="FP16", **rest)  # type: ignore[arg-type]
    return TracedLayer(operation, (seconds,))


TRACE = LayerTrace(
    span_s=8e-3,
    runs=3,
    layers=(
        traced(OperationKind.REFORMAT, 1e-3, (B,)),
        traced(OperationKind.MATRIX_PRODUCT, 6e-3, weights=(A,), tactic="sm80_simt", origin=("/fc/MatMul",)),
        traced(OperationKind.QUANTIZE, 1e-3),
        traced(OperationKind.UNKNOWN, 2e-3),
    ),
)


def test_what_follows_from_what_a_layer_is() -> None:
    profile = layer_profile(Bucket(8), TRACE)
    reformat, product, quantize, unknown = profile.layers
    assert (profile.bucket, profile.span_s, profile.are_overlapping) == (Bucket(8), 8e-3, False)
    assert (reformat.is_reformat, product.is_reformat, quantize.is_reformat, unknown.is_reformat) == (1, 0, 1, 0)
    assert (reformat.flops, reformat.nbytes) == (0, 6 << 20)
    assert (product.flops, product.nbytes) == (2 << 30, 6 << 20)
    assert (product.is_matrix_product, product.is_tensor_core, product.is_aligned) == (True, False, True)
    assert product.origin == ("/fc/MatMul",)
    assert (unknown.flops, unknown.nbytes, unknown.is_tensor_core) == (None, 4 << 20, None)
    assert known_share(profile) == pytest.approx(0.8)
    assert known_share(layer_profile(Bucket(8), LayerTrace(span_s=0.0, layers=(), runs=1))) == 0.0


def test_the_diagnosis_scales_to_the_span_and_keeps_the_unknown() -> None:
    peaks = Peaks(flops_per_s={"FP16": (2 << 30) / 4e-3}, bytes_per_s=1e12, empty_kernel_s=1e-6)
    table = classify(layer_profile(Bucket(8), TRACE), peaks)
    assert table.scale == pytest.approx(0.8)
    assert sum(layer.time_s for layer in table.layers) == pytest.approx(8e-3)
    assert [layer.kind for layer in table.layers][1] is LayerClass.COMPUTE
    assert table.coverage == pytest.approx(0.8)

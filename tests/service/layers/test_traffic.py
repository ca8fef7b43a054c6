"""Bytes by operand: types, padded channels, and what is not known."""

from __future__ import annotations

import pytest

from service.layers.traffic import channel_multiple, nbytes, operand_bytes
from service.runtime.layer_trace import Operand, Operation, OperationKind

EIGHT = "Channel major FP16 format where channel % 8 == 0"


@pytest.mark.parametrize(
    ("layout", "multiple"),
    [
        ("", 1),
        ("Row major linear FP16 format", 1),
        (EIGHT, 8),
        ("Channel major FP16 format where channel % 4 == 0", 4),
        ("Two wide channel vectorized row major FP16 format", 2),
        ("Thirty-two wide channel vectorized row major Int8 format", 32),
        ("Sixteen wide channel vectorized row major FP16 format", 16),
        ("HWC8", 8),
        ("CHW32", 32),
        ("DHWC8", 8),
        ("LINEAR", 1),
        ("Row major linear", 1),
    ],
)
def test_what_a_format_rounds_channels_up_to(layout: str, multiple: int) -> None:
    assert channel_multiple(layout) == multiple


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (Operand((8, 3, 4, 4), "FP16", EIGHT), 8 * 8 * 16 * 2),
        (Operand((8, 3, 4, 4), "FP32"), 8 * 3 * 16 * 4),
        (Operand((8, 3), "FP16", EIGHT), 48),
        (Operand((3,), "INT64"), 24),
        (Operand((3,), "INT4"), 1.5),
        (Operand((), "FP32"), 4),
        (Operand((0, 4), "FP32"), 0),
        (Operand((-1, 4), "FP32"), None),
        (Operand((4,), ""), None),
        (Operand((4,), "COMPLEX"), None),
    ],
)
def test_bytes_of_a_tensor(operand: Operand, expected: float | None) -> None:
    assert operand_bytes(operand) == expected


A, B, W, UNKNOWN = Operand((10,), "FP32"), Operand((4,), "FP16"), Operand((5,), "FP16"), Operand((3,), "")


@pytest.mark.parametrize(
    ("kind", "inputs", "weights", "outputs", "expected"),
    [
        (OperationKind.CONVOLUTION, (A, A), (W,), (B,), 40 + 40 + 10 + 8),
        (OperationKind.POINTWISE, (A,), (), (B, B), 40 + 16),
        (OperationKind.POINTWISE, (A, UNKNOWN), (), (B,), None),
        (OperationKind.CONVOLUTION, (A,), (UNKNOWN,), (B,), None),
        (OperationKind.POINTWISE, (), (), (B,), None),
        (OperationKind.POINTWISE, (A,), (), (), None),
        (OperationKind.GATHER, (Operand((30000, 384), "FP32"), Operand((6,), "INT64")), (), (A,), 40 + 48 + 40),
        (OperationKind.NOTHING, (UNKNOWN,), (), (), 0),
    ],
)
def test_bytes_of_a_layer(
    kind: OperationKind,
    inputs: tuple[Operand, ...],
    weights: tuple[Operand, ...],
    outputs: tuple[Operand, ...],
    expected: float | None,
) -> None:
    operation = Operation(name="a", word="", kind=kind, inputs=inputs, weights=weights, outputs=outputs)
    assert nbytes(operation) == expected

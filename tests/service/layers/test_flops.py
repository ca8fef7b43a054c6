"""FLOPs by rule, against figures worked out by hand and, for every shape, by definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.layers.flops import flops
from service.runtime.layer_trace import Operand, Operation, OperationKind


def fp16(*dims: int) -> Operand:
    return Operand(dims, "FP16")


def made(kind: OperationKind, inputs: list[Operand], output: Operand, **rest: object) -> Operation:
    return Operation(name="a", word="A", kind=kind, inputs=tuple(inputs), outputs=(output,), **rest)  # type: ignore[arg-type]


IMAGES, FEATURES = fp16(8, 3, 224, 224), fp16(8, 64, 112, 112)
CONV, DECONV = OperationKind.CONVOLUTION, OperationKind.DECONVOLUTION
PRODUCT, ATTENTION = OperationKind.MATRIX_PRODUCT, OperationKind.ATTENTION
FIRST_LAYER = 2 * 8 * 64 * 112 * 112 * 3 * 7 * 7


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (made(CONV, [IMAGES], FEATURES, weights=(fp16(64, 3, 7, 7), fp16(64))), FIRST_LAYER),
        (made(CONV, [IMAGES], FEATURES, weights=(fp16(9408), fp16(64)), kernel=(7, 7)), FIRST_LAYER),
        (made(CONV, [IMAGES], FEATURES, kernel=(7, 7)), FIRST_LAYER),
        (made(CONV, [fp16(1, 32, 9, 9)], fp16(1, 32, 9, 9), kernel=(3, 3), groups=32), 2 * 32 * 81 * 9),
        (made(CONV, [fp16(1, 32, 9, 9)], fp16(1, 32, 9, 9), weights=(fp16(32 * 9),), groups=32), 2 * 32 * 81 * 9),
        (made(CONV, [IMAGES], FEATURES), None),
        (made(CONV, [fp16(-1, 3, 224, 224)], FEATURES, kernel=(7, 7)), None),
        (made(DECONV, [fp16(1, 24, 80, 80)], fp16(1, 8, 160, 160), kernel=(2, 2)), 2 * 24 * 6400 * 8 * 4),
        (made(DECONV, [fp16(1, 24, 80, 80)], fp16(1, 8, 160, 160), weights=(fp16(24, 8, 2, 2),)), 2 * 24 * 6400 * 32),
        (made(DECONV, [fp16(1, 24, 80, 80)], fp16(1, 8, 160, 160), weights=(fp16(768),)), 2 * 24 * 6400 * 32),
        (made(DECONV, [fp16(1, 24, 80, 80)], fp16(1, 8, 160, 160)), None),
        # A fused projection of queries, keys and values, as TensorRT 11 lists it.
        (made(PRODUCT, [fp16(16384, 256)], fp16(3, 16384, 128), weights=(fp16(256, 384),)), 2 * 16384 * 256 * 384),
        (made(PRODUCT, [fp16(8, 12, 64, 32), fp16(8, 12, 32, 64)], fp16(8, 12, 64, 64)), 2 * 8 * 12 * 64 * 64 * 32),
        (made(PRODUCT, [fp16(8, 12, 64, 32), fp16(8, 12, 64, 32)], fp16(8, 12, 64, 64)), 2 * 8 * 12 * 64 * 64 * 32),
        (made(PRODUCT, [fp16(8, 2048)], fp16(8, 1000), weights=(fp16(2048 * 1000), fp16(1000))), 2 * 8 * 2048 * 1000),
        (made(PRODUCT, [fp16(8, 2048)], fp16(8, 1000)), 2 * 8 * 2048 * 1000),
        # A residual that is added behind the product is no factor.
        (
            made(PRODUCT, [fp16(64, 32), fp16(64, 16)], fp16(64, 16), weights=(fp16(32, 16), fp16(16))),
            2 * 64 * 32 * 16,
        ),
        (made(PRODUCT, [fp16(8, 64, 4, 16)], fp16(8, 64, 96), weights=(fp16(64, 96),)), 2 * 8 * 64 * 64 * 96),
        (made(PRODUCT, [fp16(3, 7)], fp16(2, 5)), None),
        (made(PRODUCT, [fp16(7, 5), fp16(3, 11)], fp16(7, 11)), None),
        (made(PRODUCT, [fp16(4, 9), fp16(4, 9)], fp16(6, 6)), None),
        (made(PRODUCT, [fp16(8)], fp16(8)), None),
        (made(PRODUCT, [fp16(0, 4), fp16(4, 2)], fp16(0, 2)), 0),
        (made(ATTENTION, [fp16(2, 12, 128, 64)] * 3, fp16(2, 12, 128, 64)), 4 * 2 * 12 * 128 * 64 * 128),
        (made(ATTENTION, [fp16(2, 128, 2304)], fp16(2, 128, 768)), None),
        (made(ATTENTION, [fp16(2, 12, 128, 64), fp16(2, 4, 128, 64), fp16(2, 4, 128, 64)], fp16(2, 12, 128, 64)), None),
        (made(OperationKind.POOLING, [FEATURES], fp16(8, 64, 56, 56), kernel=(3, 3)), 8 * 64 * 56 * 56 * 9),
        (made(OperationKind.POOLING, [fp16(1, 8, 7, 7)], fp16(1, 8, 1, 1)), 8 * 49),
        (made(OperationKind.POINTWISE, [FEATURES], FEATURES, steps=4), 4 * math.prod(FEATURES.dims)),
        (made(OperationKind.SOFTMAX, [fp16(2, 10)], fp16(2, 10)), 100),
        (made(OperationKind.NORMALISATION, [fp16(2, 10)], fp16(2, 10)), 160),
        (made(OperationKind.REDUCTION, [fp16(2, 10)], fp16(2)), 20),
        (made(OperationKind.COPY, [fp16(-1)], fp16(-1)), 0),
        (made(OperationKind.REFORMAT, [FEATURES], FEATURES), 0),
        (made(OperationKind.UNKNOWN, [FEATURES], FEATURES), None),
    ],
)
def test_rules(operation: Operation, expected: float | None) -> None:
    assert flops(operation) == expected


def test_without_outputs_nothing_is_known() -> None:
    assert flops(Operation(name="a", word="", kind=PRODUCT)) is None
    assert flops(Operation(name="a", word="Constant", kind=OperationKind.NOTHING)) == 0


extent = st.integers(1, 300)


@given(batch=st.integers(1, 40), rows=extent, columns=extent, depth=extent, is_turned=st.booleans())
def test_a_batched_product_whatever_way_its_factors_lie(
    batch: int, rows: int, columns: int, depth: int, is_turned: bool
) -> None:
    right = fp16(batch, columns, depth) if is_turned else fp16(batch, depth, columns)
    operation = made(PRODUCT, [fp16(batch, rows, depth), right], fp16(batch, rows, columns))
    assert flops(operation) == 2 * batch * rows * columns * depth


@given(st.integers(1, 8), st.integers(1, 32), st.integers(1, 32), extent, st.integers(1, 7))
def test_a_convolution_costs_the_same_however_its_weights_are_told(
    size: int, fed: int, made_of: int, side: int, window: int
) -> None:
    ends = [fp16(size, fed, side, side)], fp16(size, made_of, side, side)
    told = made(CONV, *ends, weights=(fp16(made_of, fed, window, window),))
    counted = made(CONV, *ends, weights=(fp16(made_of * fed * window * window),))
    windowed = made(CONV, *ends, kernel=(window, window))
    assert flops(told) == flops(counted) == flops(windowed) == 2 * size * made_of * side**2 * fed * window**2

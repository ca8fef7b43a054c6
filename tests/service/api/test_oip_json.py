import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.oip_json import array_from_json, json_from_array
from service.bfloat16 import bfloat16_values
from service.errors import InvalidInput
from service.tensors import DType, TensorSpec

INTEGERS = [dtype for dtype in DType if dtype.is_integer]
FLOATS = [DType.FP16, DType.BF16, DType.FP32, DType.FP64]


def parse(data: Any, dtype: DType, *shape: int) -> Any:
    return array_from_json(data, TensorSpec("x", dtype, shape), shape)


def emit(array: Any, dtype: DType) -> Any:
    spec = TensorSpec("y", dtype, array.shape)
    return orjson.loads(orjson.dumps(json_from_array(array, spec), option=orjson.OPT_SERIALIZE_NUMPY))


@pytest.mark.parametrize(
    ("data", "dtype", "shape", "expected"),
    [
        ([1, 2, 3, 4], DType.INT32, (2, 2), [[1, 2], [3, 4]]),
        ([[1, 2], [3, 4]], DType.INT32, (2, 2), [[1, 2], [3, 4]]),
        ([[[1], [2]]], DType.UINT8, (1, 2, 1), [[[1], [2]]]),
        ([7], DType.INT64, (), 7),
        ([1, 2.5, -3], DType.FP32, (3,), [1.0, 2.5, -3.0]),
        ([1, 2.5], DType.FP16, (2,), [1.0, 2.5]),
        ([1.0, -2.0], DType.BF16, (2,), [0x3F80, 0xC000]),
        ([True, False], DType.BOOL, (2,), [True, False]),
        (["größe", ""], DType.BYTES, (1, 2), [["größe".encode(), b""]]),
        ([["a"], ["b"]], DType.BYTES, (2, 1), [[b"a"], [b"b"]]),
    ],
)
def test_flat_and_nested_data(data: Any, dtype: DType, shape: tuple[int, ...], expected: Any) -> None:
    array = parse(data, dtype, *shape)
    assert array.tolist() == expected
    assert (array.dtype, array.shape, array.flags.c_contiguous) == (dtype.numpy, shape, True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "'data' of input 'x' must be a JSON array, got null"),
        (7, "'data' of input 'x' must be a JSON array, got 7"),
        ("1234", "'data' of input 'x' must be a JSON array, got a string"),
        ({"0": 1}, "'data' of input 'x' must be a JSON array, got an object"),
        ([], r"shape \[2,2\] has 4 elements, got 0"),
        ([1, 2, 3], r"shape \[2,2\] has 4 elements, got 3"),
        ([1, 2, 3, 4, 5], r"shape \[2,2\] has 4 elements, got 5"),
        ([[1, 2, 3, 4]], r"nested otherwise than its shape \[2,2\]"),
        ([[1, 2], [3, 4, 5]], r"nested otherwise than its shape \[2,2\]"),
        ([[1, 2], [3]], r"nested otherwise than its shape \[2,2\]"),
        ([[1, 2], 3, 4], r"nested otherwise than its shape \[2,2\]"),
        ([[1], [2], [3], [4]], r"nested otherwise than its shape \[2,2\]"),
        ([[[1, 2]], [[3, 4]]], r"nested otherwise than its shape \[2,2\]"),
        ([[[1], [2]], [[3], [4]]], "holds an array; FP32 takes numbers only"),
        ([1, [2], 3, 4], "holds an array; FP32 takes numbers only"),
    ],
)
def test_nesting_is_flat_or_exactly_the_shape(data: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse(data, DType.FP32, 2, 2)


@pytest.mark.parametrize(
    ("value", "dtypes", "message"),
    [
        (None, list(DType), "holds null"),
        ({}, list(DType), "holds an object"),
        ("1", [dtype for dtype in DType if dtype is not DType.BYTES], "holds a string"),
        (True, [dtype for dtype in DType if dtype is not DType.BOOL], "holds true/false"),
        (1, [DType.BOOL, DType.BYTES], "holds an integer"),
        (1.5, [*INTEGERS, DType.BOOL, DType.BYTES], "holds a number with a fraction"),
    ],
)
def test_values_of_another_kind_are_refused_in_any_mix(value: Any, dtypes: list[DType], message: str) -> None:
    for dtype in dtypes:
        fitting: Any = "a" if dtype is DType.BYTES else dtype is DType.BOOL or 1
        with pytest.raises(InvalidInput, match=f"'data' of input 'x' {message}; {dtype.value} takes "):
            parse([fitting, value, fitting], dtype, 3)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_held_to_their_range(dtype: DType) -> None:
    limits = np.iinfo(dtype.value.lower())
    edges = [int(limits.min), int(limits.max)]
    assert parse(edges, dtype, 2).tolist() == edges
    for beyond in (limits.min - 1, limits.max + 1):
        with pytest.raises(InvalidInput, match=f"{dtype.value} takes {limits.min} to {limits.max}|with a fraction"):
            parse(orjson.loads(f"[0, {beyond}]"), dtype, 2)


@pytest.mark.parametrize(
    ("dtype", "largest", "beyond"),
    [
        (DType.FP16, 65504.0, 65520.0),
        (DType.BF16, 3.3895313892515355e38, 3.4e38),
        (DType.FP32, 3.4028234663852886e38, 3.5e38),
    ],
)
def test_finite_numbers_never_become_infinite(dtype: DType, largest: float, beyond: float) -> None:
    emitted = emit(parse([largest, -largest], dtype, 2), dtype)
    assert np.array(emitted, dtype=np.float32).tolist() == [largest, -largest]
    for value in (beyond, -beyond, 10**19):
        if abs(value) > largest:
            with pytest.raises(InvalidInput, match=f"which is too large for {dtype.value}"):
                parse([0, value], dtype, 2)


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (1.00390625, 0x3F80),  # halfway between two: to even, down
        (1.01171875, 0x3F82),  # halfway between two: to even, up
        (1.0039065, 0x3F81),
        (1.99609375, 0x4000),  # carries into the exponent
        (-0.0, 0x8000),
    ],
)
def test_bf16_is_rounded_to_nearest_even(value: float, bits: int) -> None:
    assert parse([value], DType.BF16, 1).tolist() == [bits]


def test_every_finite_bf16_survives_the_round_trip() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[np.isfinite(bfloat16_values(bits))]
    np.testing.assert_array_equal(parse(emit(bits, DType.BF16), DType.BF16, len(bits)), bits)


@given(st.sampled_from(FLOATS), st.lists(st.floats(-60000, 60000), min_size=1, max_size=9))
def test_floats_survive_the_round_trip_exactly(dtype: DType, values: list[float]) -> None:
    array = parse(values, dtype, len(values))
    np.testing.assert_array_equal(parse(emit(array, dtype), dtype, len(values)), array)


@pytest.mark.parametrize("dtype", [*INTEGERS, DType.BOOL])
def test_integers_and_booleans_are_emitted_exactly(dtype: DType) -> None:
    limits = np.iinfo(dtype.value.lower()) if dtype is not DType.BOOL else None
    values = [False, True] if limits is None else [int(limits.min), int(limits.max)]
    emitted = emit(np.array([values], dtype=dtype.numpy), dtype)
    assert emitted == values
    assert [type(value) for value in emitted] == [type(value) for value in values]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_json_cannot_express_asks_for_binary(value: float, dtype: DType) -> None:
    array = np.array([0.0, value], dtype=np.float32)
    host = (array.view(np.uint32) >> 16).astype(np.uint16) if dtype is DType.BF16 else array.astype(dtype.numpy)
    with pytest.raises(InvalidInput, match=r"output 'y' holds NaN or infinity, .*binary_data"):
        json_from_array(host, TensorSpec("y", dtype, (2,)))


def test_bytes_are_emitted_as_text_or_ask_for_binary() -> None:
    spec = TensorSpec("y", DType.BYTES, (1, 2))
    assert json_from_array(np.array([["größe".encode(), b""]], dtype=object), spec) == ["größe", ""]
    with pytest.raises(InvalidInput, match=r"output 'y' holds bytes that are not UTF-8, .*binary_data"):
        json_from_array(np.array([[b"\xff", b""]], dtype=object), spec)

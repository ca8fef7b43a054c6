from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tensors import Dim, DType, TensorSpec, element_count, first_not_utf8

ITEMSIZES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 0,
}


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([[b"", b"plain"], ["caf\u00e9".encode(), b"a\0b"]], None),
        ([[b"ok", b"\xff"], [b"\xfe", b"ok"]], 1),
        ([[b"ok", b"ok"], [b"ok", b"\xc3"]], 3),
        ([[b"\xed\xa0\x80"]], 0),
    ],
)
def test_first_not_utf8(values: list[list[bytes]], index: int | None) -> None:
    assert first_not_utf8(np.array(values, np.object_)) == index


def test_the_protocol_s_types_and_their_sizes() -> None:
    assert {dtype.value: dtype.itemsize for dtype in DType} == ITEMSIZES
    for dtype in DType:
        assert dtype.numpy.itemsize == (8 if dtype is DType.BYTES else dtype.itemsize)
    assert {dtype.value for dtype in DType if dtype.is_integer} == {
        name for name in ITEMSIZES if name.startswith(("INT", "UINT"))
    }


@pytest.mark.parametrize(
    ("dims", "wire_shape", "resolved"),
    [
        ((), [], ()),
        ((2, 3), [2, 3], (2, 3)),
        (("batch", 3, "width"), [-1, 3, -1], (4, 3, 9)),
        (("width", "width"), [-1, -1], (9, 9)),
    ],
)
def test_shapes(dims: tuple[Dim, ...], wire_shape: list[int], resolved: tuple[int, ...]) -> None:
    tensor = TensorSpec("x", DType.FP32, dims)
    assert tensor.wire_shape == wire_shape
    assert tensor.resolve({"batch": 4, "width": 9, "unused": 1}) == resolved


def test_a_dimension_without_a_size_is_an_error() -> None:
    with pytest.raises(KeyError, match="width"):
        TensorSpec("x", DType.FP32, ("batch", "width")).resolve({"batch": 1})


@given(st.lists(st.integers(0, 2**63), max_size=6))
def test_element_count_never_overflows(shape: list[int]) -> None:
    assert element_count(shape) == math.prod(shape)

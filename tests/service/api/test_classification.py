from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.api.classification import classify
from service.tensors import DType


def one_row(values: Sequence[float], dtype: DType, count: int, labels: Sequence[str] = ()) -> list[bytes]:
    array = np.array([values], dtype=dtype.numpy)
    return classify(array, dtype, count, labels, has_batch_dim=True)[0].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("values", "dtype", "count", "expected"),
    [
        ([1, 2, 3], DType.FP32, 2, [b"3.000000:2", b"2.000000:1"]),
        ([1, 2, 3], DType.FP64, 9, [b"3.000000:2", b"2.000000:1", b"1.000000:0"]),
        ([5, 7, 7, 5, 7], DType.FP32, 4, [b"7.000000:1", b"7.000000:2", b"7.000000:4", b"5.000000:0"]),
        ([0.1, 0.25], DType.FP16, 2, [b"0.250000:1", b"0.099976:0"]),
        ([0x3F80, 0xBF80, 0x4000], DType.BF16, 3, [b"2.000000:2", b"1.000000:0", b"-1.000000:1"]),
        ([float("nan"), -1, float("inf")], DType.FP32, 3, [b"inf:2", b"-1.000000:1", b"nan:0"]),
        ([-128, 127, 0], DType.INT8, 3, [b"127:1", b"0:2", b"-128:0"]),
        ([0, 255, 1], DType.UINT8, 3, [b"255:1", b"1:2", b"0:0"]),
        ([0, (1 << 64) - 1, 1 << 63], DType.UINT64, 2, [b"18446744073709551615:1", b"9223372036854775808:2"]),
        ([-(1 << 63), (1 << 63) - 1], DType.INT64, 2, [b"9223372036854775807:1", b"-9223372036854775808:0"]),
        ([4, 4, 4], DType.INT32, 2, [b"4:0", b"4:1"]),
        ([1, 2], DType.FP32, 1 << 70, [b"2.000000:1", b"1.000000:0"]),
    ],
)
def test_largest_values_first_and_ties_by_index(
    values: list[float], dtype: DType, count: int, expected: list[bytes]
) -> None:
    assert one_row(values, dtype, count) == expected


def test_labels_are_appended_where_there_are_any() -> None:
    assert one_row([1, 3, 2], DType.FP32, 3, ["cat", "größe"]) == [
        "3.000000:1:größe".encode(),
        b"2.000000:2",
        b"1.000000:0:cat",
    ]


@pytest.mark.parametrize(
    ("shape", "has_batch_dim", "expected"),
    [
        ((2, 5), True, (2, 3)),
        ((2, 2), True, (2, 2)),
        ((2, 5, 1, 1), True, (2, 3)),
        ((2,), True, (2, 1)),
        ((2, 5), False, (3,)),
        ((), False, (1,)),
    ],
)
def test_shape_is_rows_by_classes(shape: tuple[int, ...], has_batch_dim: bool, expected: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype=np.float32)
    assert classify(array, DType.FP32, 3, (), has_batch_dim=has_batch_dim).shape == expected


@pytest.mark.parametrize("dtype", [DType.FP32, DType.UINT8])
def test_ties_among_many_classes_keep_the_order_of_their_indices(dtype: DType) -> None:
    values = [float(index % 2) for index in range(1000)]
    indices = [int(element.split(b":")[1]) for element in one_row(values, dtype, 1000)]
    assert indices == [*range(1, 1000, 2), *range(0, 1000, 2)]


@given(hnp.arrays(np.int8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)), st.integers(1, 10))
def test_agrees_with_sorting_by_value_then_index(array: npt.NDArray[np.int8], count: int) -> None:
    rows = classify(array, DType.INT8, count, (), has_batch_dim=True).tolist()
    for row, values in zip(rows, array.tolist(), strict=True):
        ranked = sorted(enumerate(values), key=lambda pair: (-pair[1], pair[0]))[:count]
        assert row == [f"{value}:{index}".encode() for index, value in ranked]

"""The classification extension: the largest values of an output, by name, instead of the tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.api.oip_binary import bytes_array
from service.bfloat16 import bfloat16_values
from service.tensors import DType, HostArray


def classify(array: HostArray, dtype: DType, count: int, labels: Sequence[str], *, has_batch_dim: bool) -> HostArray:
    """The `count` largest values of each row, or fewer where a row has fewer, largest first.

    Equal values come in the order of their indices; NaN comes last. The dimensions behind the batch are one list
    of classes; without a batch dimension the whole tensor is.

    Args:
        array: the output, [rows, ...] or [...]; BF16 as bits.
        dtype: its type, neither BYTES nor BOOL.
        count: at least 1.
        labels: class names by index; a class without one is shown by its index alone.
        has_batch_dim: whether the leading dimension counts rows.

    Returns:
        BYTES [rows, min(count, classes)], or [min(count, classes)] without a batch dimension: each element is
        `<value>:<index>` or `<value>:<index>:<label>`, the value with six decimals, or none if it is an integer.
    """
    values = bfloat16_values(array) if dtype is DType.BF16 else array
    rows = values.shape[0] if has_batch_dim else 1
    table = values.reshape(rows, values.size // rows if rows else 0)
    # A stable ascending sort of keys that fall as values rise keeps ties in the order of their indices. Bitwise
    # "not" reverses integers of any sign without overflow; negated NaN still sorts last.
    keys: HostArray = np.invert(table) if dtype.is_integer else np.negative(table)
    order = np.argsort(keys, axis=1, kind="stable")[:, :count]
    value_format = "%d" if dtype.is_integer else "%f"
    elements = [
        _element(value_format % value, index, labels)
        for row_values, row in zip(np.take_along_axis(table, order, axis=1).tolist(), order.tolist(), strict=True)
        for value, index in zip(row_values, row, strict=True)
    ]
    return bytes_array(elements, order.shape if has_batch_dim else order.shape[1:])


def _element(value: str, index: int, labels: Sequence[str]) -> bytes:
    label = f":{labels[index]}" if index < len(labels) else ""
    return f"{value}:{index}{label}".encode()

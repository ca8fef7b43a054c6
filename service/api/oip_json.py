"""Tensors as JSON values.

Numbers are never bent to fit: an integer outside its type's range, a finite number that its type would make
infinite, a fraction in an integer tensor, and mixes with strings, null or true/false are refused. BOOL takes
true and false only (not 0 and 1), BYTES takes strings, which become their UTF-8 bytes.

FP16 and BF16 are accepted and emitted as numbers although the protocol keeps them out of JSON: each value of
these types is a number that JSON can hold, and users ask for it. Input is rounded to the nearest value.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from service.api.oip_binary import bytes_array
from service.bfloat16 import bfloat16_bits, bfloat16_values
from service.client_text import kind_text, shape_text, value_text
from service.errors import InvalidInput
from service.tensors import DType, HostArray, TensorSpec, element_count

_FLOATS = (DType.FP16, DType.BF16, DType.FP32, DType.FP64)


def array_from_json(data: Any, tensor: TensorSpec, shape: tuple[int, ...]) -> HostArray:
    """The tensor that `data`, flat or nested exactly like `shape`, holds.

    Returns:
        A new C-contiguous array of `shape`.

    Raises:
        InvalidInput: wrong nesting, count, kind of value or range; the message names the input.
    """
    flat = _flatten(data, tensor.name, shape)
    kinds = set(map(type, flat))
    allowed, words = _accepted(tensor.dtype)
    if not kinds <= allowed:
        got = ", ".join(sorted(kind_text(kind) for kind in kinds - allowed))
        raise InvalidInput(f"'data' of input '{tensor.name}' holds {got}; {tensor.dtype.value} takes {words} only")
    if tensor.dtype is DType.BYTES:
        return bytes_array([text.encode() for text in flat], shape)
    if tensor.dtype.is_integer:
        _check_range(flat, tensor)
        return np.array(flat, dtype=tensor.dtype.numpy).reshape(shape)
    if tensor.dtype is DType.BOOL:
        return np.array(flat, dtype=np.bool_).reshape(shape)
    return _float_array(flat, tensor).reshape(shape)


def json_from_array(array: HostArray, tensor: TensorSpec) -> HostArray | list[str]:
    """What the JSON encoder (with NumPy support) writes as the flat `data` of an output.

    A model's NaN or infinity is answered with a 400, not a 5xx: the tensor is fine, only the form that the client
    asked for cannot carry it; retrying is futile and asking for binary data helps.

    Raises:
        InvalidInput: the values do not exist in JSON (NaN, infinities, bytes that are not UTF-8).
    """
    flat = array.reshape(-1)
    if tensor.dtype is DType.BYTES:
        return _texts(flat.tolist(), tensor.name)
    if tensor.dtype not in _FLOATS:
        return flat
    numbers: npt.NDArray[Any] = bfloat16_values(flat) if tensor.dtype is DType.BF16 else flat
    if not np.isfinite(numbers).all():
        raise InvalidInput(
            f"output '{tensor.name}' holds NaN or infinity, which JSON cannot express; "
            'request it with "binary_data": true'
        )
    return numbers


def _flatten(data: Any, name: str, shape: tuple[int, ...]) -> list[Any]:
    if type(data) is not list:
        raise InvalidInput(f"'data' of input '{name}' must be a JSON array, got {value_text(data)}")
    level: list[Any] = data
    if data and type(data[0]) is list:
        level = [data]
        for extent in shape:
            if set(map(type, level)) != {list} or set(map(len, level)) != {extent}:
                raise InvalidInput(
                    f"'data' of input '{name}' is nested otherwise than its shape {shape_text(shape)}; "
                    "send it flat, or nested exactly like the shape"
                )
            level = list(chain.from_iterable(level))
    count = element_count(shape)
    if len(level) != count:
        raise InvalidInput(
            f"unexpected size for 'data' of input '{name}': shape {shape_text(shape)} has {count} elements, "
            f"got {len(level)}"
        )
    return level


def _accepted(dtype: DType) -> tuple[frozenset[type], str]:
    if dtype is DType.BYTES:
        return frozenset((str,)), "strings"
    if dtype is DType.BOOL:
        return frozenset((bool,)), "true and false"
    if dtype.is_integer:
        return frozenset((int,)), "integers"
    return frozenset((int, float)), "numbers"


def _check_range(flat: list[int], tensor: TensorSpec) -> None:
    # The JSON parser makes integers beyond 64 bits floats, which have been refused by now.
    limits = np.iinfo(tensor.dtype.value.lower())
    low, high = min(flat), max(flat)
    if low < limits.min or high > limits.max:
        got = low if low < limits.min else high
        raise InvalidInput(
            f"'data' of input '{tensor.name}' holds {got}; {tensor.dtype.value} takes {limits.min} to {limits.max}"
        )


def _float_array(flat: list[float], tensor: TensorSpec) -> HostArray:
    wide = np.array(flat, dtype=np.float64)
    with np.errstate(over="ignore"):
        if tensor.dtype is DType.BF16:
            bits = bfloat16_bits(wide.astype(np.float32))
            is_finite = np.isfinite(bfloat16_values(bits))
            array: HostArray = bits
        else:
            array = wide.astype(tensor.dtype.numpy, copy=False)
            is_finite = np.isfinite(array)
    if not is_finite.all():
        raise InvalidInput(
            f"'data' of input '{tensor.name}' holds {wide[~is_finite][0]}, which is too large for {tensor.dtype.value}"
        )
    return array


def _texts(elements: Iterable[bytes], name: str) -> list[str]:
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        raise InvalidInput(
            f"output '{name}' holds bytes that are not UTF-8, which JSON cannot express; "
            'request it with "binary_data": true'
        ) from None

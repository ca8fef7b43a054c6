"""What stands where a batch has no data: one value per input, checked against its type before anything runs."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from service.bfloat16 import bfloat16_bits
from service.errors import CardError
from service.models import ModelSpec
from service.tensors import DType, TensorSpec

PadValue: TypeAlias = np.generic | bytes
"""A scalar of the input's host type (BF16: uint16 bits), or b"" for BYTES."""


def pad_values(spec: ModelSpec) -> tuple[PadValue, ...]:
    """The padding of every input, in the order of `ModelSpec.inputs`.

    Raises:
        CardError: `[padding]` names a value that the input's type cannot hold.
    """
    return tuple(_pad_value(spec, tensor) for tensor in spec.inputs)


def _pad_value(spec: ModelSpec, tensor: TensorSpec) -> PadValue:
    value = spec.card.pad_values.get(tensor.name, 0)
    if tensor.dtype is DType.BYTES:
        if value != 0:
            raise _refused(spec, tensor, value, "leave it out: BYTES are padded with empty strings")
        return b""
    if tensor.dtype.is_integer:
        limits = np.iinfo(tensor.dtype.numpy.name)
        if not limits.min <= value <= limits.max or value != int(value):
            raise _refused(spec, tensor, value, f"give a whole number from {limits.min} to {limits.max}")
        return _scalar(tensor.dtype, int(value))
    if tensor.dtype is DType.BOOL and value not in {0, 1}:
        raise _refused(spec, tensor, value, "give 0 or 1")
    pad = _scalar(tensor.dtype, value)
    if tensor.dtype is not DType.BF16 and np.isfinite(value) and not np.isfinite(pad):
        limit = np.finfo(tensor.dtype.numpy.name).max
        raise _refused(spec, tensor, value, f"give a value from {-limit:g} to {limit:g}")
    return pad


def _scalar(dtype: DType, value: float) -> np.generic:
    scalar: np.generic
    if dtype is DType.BF16:
        scalar = bfloat16_bits(np.asarray([value], np.float32))[0]
    else:
        with np.errstate(over="ignore"):
            scalar = dtype.numpy.type(value)
    return scalar


def _refused(spec: ModelSpec, tensor: TensorSpec, value: float, mend: str) -> CardError:
    return CardError(
        f"model '{spec.name}': {tensor.name} = {value} in [padding] does not fit {tensor.dtype.value}; {mend}"
    )

"""Bytes that a layer has to read and write, from its operands alone. Pure; what is not known gives None.

A lower bound where a layer reads something twice, and an upper bound where the cache keeps what another one wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from service.runtime.layer_trace import Operand, Operation, OperationKind

_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "INT4": 4,
    "FP4": 4,
    "INT8": 8,
    "UINT8": 8,
    "FP8": 8,
    "INT16": 16,
    "UINT16": 16,
    "FP16": 16,
    "BF16": 16,
    "INT32": 32,
    "UINT32": 32,
    "FP32": 32,
    "TF32": 32,
    "INT64": 64,
    "UINT64": 64,
    "FP64": 64,
}

_NUMBERS: Mapping[str, int] = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_WIDE = re.compile(r"\b(two|four|eight|sixteen|thirty-two)[ -]wide channel", re.IGNORECASE)
_MODULO = re.compile(r"channel % (\d+) == 0")
_SHORT = re.compile(r"\bC?D?HWC?(\d+)\b")


def nbytes(operation: Operation) -> float | None:
    """Bytes of inputs, weights and outputs per execution; 0 of what does nothing.

    A gather reads as many elements of its table as it writes, not all of it.
    """
    if operation.kind is OperationKind.NOTHING:
        return 0.0
    inputs = operation.inputs
    if not inputs or not operation.outputs:
        return None
    if operation.kind is OperationKind.GATHER:
        inputs = (*operation.outputs, *inputs[1:])
        return _sum((*inputs, *operation.outputs))
    return _sum((*inputs, *operation.weights, *operation.outputs))


def operand_bytes(operand: Operand) -> float | None:
    """Bytes of one tensor, channels padded as its format says; None where dims or type are not known."""
    bits = _BITS.get(operand.dtype)
    if bits is None or any(extent < 0 for extent in operand.dims):
        return None
    elements = 1
    for axis, extent in enumerate(operand.dims):
        elements *= _padded(extent, operand.format) if axis == 1 and len(operand.dims) > 2 else extent
    return elements * bits / 8


def channel_multiple(layout: str) -> int:
    """What a format rounds the number of channels up to; 1 where it does not.

    In TensorRT's words, until version 10 `Thirty-two wide channel vectorized` or `channel % 8 == 0`, in short `CHW32`
    or `HWC8`.
    """
    if found := _WIDE.search(layout):
        return _NUMBERS[found[1].lower()]
    if found := _MODULO.search(layout) or _SHORT.search(layout):
        return max(1, int(found[1]))
    return 1


def _padded(channels: int, layout: str) -> int:
    multiple = channel_multiple(layout)
    return -(-channels // multiple) * multiple


def _sum(operands: tuple[Operand, ...]) -> float | None:
    total = 0.0
    for operand in operands:
        size = operand_bytes(operand)
        if size is None:
            return None
        total += size
    return total

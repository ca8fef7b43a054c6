"""A model of nothing but matrix products, written as ONNX's own bytes: the server need not have the package `onnx`.

The numbers of the fields are those of the schema that ONNX publishes as `onnx.proto`.
"""

from __future__ import annotations

import itertools

from service.tensors import HostArray

_IR_VERSION, _OPSET = 8, 17
_FLOAT = 1


def products_model(weights: HostArray, count: int) -> bytes:
    """`x: FP32[any, k] -> z = x @ weights @ ... @ weights`, `count` products in a row, at least one.

    Args:
        weights: FP32[k, k], C-contiguous; the model's own, so that ONNX Runtime packs them once, as it does a layer's.
        count: of products.
    """
    names = ["x", *(f"z{index}" for index in range(1, count)), "z"]
    nodes = b"".join(_field(1, _node(inputs=(left, "w"), output=right)) for left, right in itertools.pairwise(names))
    graph = nodes + _text(2, "products") + _field(5, _tensor("w", weights)) + _field(11, _value("x"))
    opset = _number(2, _OPSET)
    return _number(1, _IR_VERSION) + _field(7, graph + _field(12, _value("z"))) + _field(8, opset)


def _tensor(name: str, values: HostArray) -> bytes:
    dims = b"".join(_number(1, extent) for extent in values.shape)
    return dims + _number(2, _FLOAT) + _text(8, name) + _field(9, values.astype("<f4").tobytes())


def _node(*, inputs: tuple[str, str], output: str) -> bytes:
    return b"".join(_text(1, name) for name in inputs) + _text(2, output) + _text(4, "MatMul")


def _value(name: str) -> bytes:
    """FP32 of two dims, each of any size but with a name."""
    dims = b"".join(_field(1, _text(2, f"{name}_{axis}")) for axis in range(2))
    tensor = _number(1, _FLOAT) + _field(2, dims)
    return _text(1, name) + _field(2, _field(1, tensor))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])

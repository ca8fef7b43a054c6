"""Small ONNX models, built on the spot: each function writes one to `path` and returns it.

All have opset 17 and ir_version 8, weights from a fixed seed, and a dynamic leading dimension named `batch`
unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Dims = Sequence[int | str | None]

CNN_CLASSES = 10
HIDDEN = 8
VOCABULARY = 32


def make_identity(path: Path, *, element_type: int = TensorProto.FLOAT, dims: Dims = ("batch", 16)) -> Path:
    """`x -> y`, both of `dims`: the server alone, with no work for the model."""
    x, y = _value("x", element_type, dims), _value("y", element_type, dims)
    return _save(path, [helper.make_node("Identity", ["x"], ["y"])], [x], [y])


def make_scaled(path: Path, *, factor: float, dims: Dims = ("batch", 8)) -> Path:
    """`x: FP32[batch, 8] -> y = factor * x`, of the same shape."""
    x, y = _value("x", TensorProto.FLOAT, dims), _value("y", TensorProto.FLOAT, dims)
    return _save(path, [helper.make_node("Mul", ["x", "factor"], ["y"])], [x], [y], {"factor": np.float32(factor)})


def make_identity_any_width(path: Path) -> Path:
    """`x: FP32[batch, width] -> y` of the same shape."""
    return make_identity(path, dims=("batch", "width"))


def make_fp16(path: Path) -> Path:
    """`x: FP16[batch, 16] -> y` of the same shape."""
    return make_identity(path, element_type=TensorProto.FLOAT16)


def make_bf16(path: Path, *, dims: Dims = ("batch", 16)) -> Path:
    """`x: BF16[batch, 16] -> y` of the same shape."""
    return make_identity(path, element_type=TensorProto.BFLOAT16, dims=dims)


def make_bool(path: Path) -> Path:
    """`x: BOOL[batch, 16] -> y` of the same shape."""
    return make_identity(path, element_type=TensorProto.BOOL)


def make_string(path: Path, *, dims: Dims = ("batch", 2)) -> Path:
    """`x: BYTES[batch, 2] -> y` of the same shape."""
    return make_identity(path, element_type=TensorProto.STRING, dims=dims)


def make_simple(path: Path) -> Path:
    """Triton's "simple" example: `INPUT0, INPUT1: INT32[batch, 16] -> OUTPUT0` (sum), `OUTPUT1` (difference)."""
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    names = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")
    values = [_value(name, TensorProto.INT32, ("batch", 16)) for name in names]
    return _save(path, nodes, values[:2], values[2:])


def make_cnn(path: Path) -> Path:
    """A classifier: `image: UINT8[batch, 3, 64, 64] -> logits: FP32[batch, 10]`."""
    rng = np.random.default_rng(1)
    weights = {
        "scale": np.float32(1 / 255),
        "w1": rng.standard_normal((8, 3, 3, 3), np.float32) * np.float32(0.3),
        "w2": rng.standard_normal((16, 8, 3, 3), np.float32) * np.float32(0.2),
        "w3": rng.standard_normal((16, CNN_CLASSES), np.float32),
    }
    nodes = [
        helper.make_node("Cast", ["image"], ["image_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["image_float", "scale"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "w1"], ["conv1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["conv1"], ["relu1"]),
        helper.make_node("Conv", ["relu1", "w2"], ["conv2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["conv2"], ["relu2"]),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "w3"], ["logits"]),
    ]
    image = _value("image", TensorProto.UINT8, ("batch", 3, 64, 64))
    logits = _value("logits", TensorProto.FLOAT, ("batch", CNN_CLASSES))
    return _save(path, nodes, [image], [logits], weights)


def make_sequence(path: Path) -> Path:
    """An encoder: `input_ids, attention_mask: INT64[batch, sequence]`, ids below `VOCABULARY`, to two outputs.

    `tokens: FP32[batch, sequence, HIDDEN]` holds a vector per token and `embedding: FP32[batch, HIDDEN]` their
    mean where the mask is 1, so that padding with 0 changes nothing. A row without any 1 gives zeros.
    """
    rng = np.random.default_rng(2)
    weights = {
        "table": rng.standard_normal((VOCABULARY, HIDDEN), np.float32),
        "axis_last": np.int64([-1]),
        "axis_sequence": np.int64([1]),
        "one": np.float32(1),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "axis_last"], ["mask_column"]),
        helper.make_node("Mul", ["tokens", "mask_column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "axis_sequence"], ["total"], keepdims=0),
        helper.make_node("ReduceSum", ["mask", "axis_sequence"], ["count"], keepdims=1),
        helper.make_node("Max", ["count", "one"], ["count_or_one"]),
        helper.make_node("Div", ["total", "count_or_one"], ["embedding"]),
    ]
    inputs = [_value(name, TensorProto.INT64, ("batch", "sequence")) for name in ("input_ids", "attention_mask")]
    outputs = [
        _value("tokens", TensorProto.FLOAT, ("batch", "sequence", HIDDEN)),
        _value("embedding", TensorProto.FLOAT, ("batch", HIDDEN)),
    ]
    return _save(path, nodes, inputs, outputs, weights)


def make_not_batched(path: Path) -> Path:
    """`x: FP32[3, 4] -> y: FP32[4]`, the sum over the fixed leading dimension."""
    nodes = [helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=0)]
    x, y = _value("x", TensorProto.FLOAT, (3, 4)), _value("y", TensorProto.FLOAT, (4,))
    return _save(path, nodes, [x], [y], {"axis": np.int64([0])})


def make_batch_dependent(path: Path, *, dims: Dims = ("batch", 4)) -> Path:
    """`x: FP32[batch, 4] -> y = x - (mean of x over the batch)`: rows that must never be joined."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    x, y = _value("x", TensorProto.FLOAT, dims), _value("y", TensorProto.FLOAT, dims)
    return _save(path, nodes, [x], [y])


def make_flattening(path: Path) -> Path:
    """`x: FP32[batch, 4] -> y: FP32[rows]` of batch * 4 elements: the output's leading dimension is not the batch."""
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["y"])]
    x, y = _value("x", TensorProto.FLOAT, ("batch", 4)), _value("y", TensorProto.FLOAT, ("rows",))
    return _save(path, nodes, [x], [y], {"flat": np.int64([-1])})


def make_reshape(path: Path) -> Path:
    """`x: FP32[4, 8], shape: INT64[2] -> y: FP32[rows, columns]`: x in the shape that the other input holds."""
    x, shape = _value("x", TensorProto.FLOAT, (4, 8)), _value("shape", TensorProto.INT64, (2,))
    y = _value("y", TensorProto.FLOAT, ("rows", "columns"))
    return _save(path, [helper.make_node("Reshape", ["x", "shape"], ["y"])], [x, shape], [y])


def make_bounded_lookup(path: Path) -> Path:
    """`index: INT64[batch] -> y: FP32[batch, 2]`: a lookup that fails the whole run for an index outside 0-2."""
    nodes = [helper.make_node("Gather", ["table", "index"], ["y"])]
    index, y = _value("index", TensorProto.INT64, ("batch",)), _value("y", TensorProto.FLOAT, ("batch", 2))
    return _save(path, nodes, [index], [y], {"table": np.arange(6, dtype=np.float32).reshape(3, 2)})


def make_data_dependent(path: Path) -> Path:
    """`x: FP32[batch, 4] -> y: FP32[batch, top]` whose width is the largest value in x, filled with ones."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top_float"], keepdims=0),
        helper.make_node("Cast", ["top_float"], ["top"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["top", "vector"], ["top_vector"]),
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "top_vector"], ["shape"], axis=0),
        helper.make_node("Expand", ["one", "shape"], ["y"]),
    ]
    x, y = _value("x", TensorProto.FLOAT, ("batch", 4)), _value("y", TensorProto.FLOAT, ("batch", "top"))
    return _save(path, nodes, [x], [y], {"vector": np.int64([1]), "one": np.float32([1])})


def make_slow(path: Path, *, side: int = 640, products: int = 8) -> Path:
    """`x: FP32[batch, 1] -> y` of the same shape, by way of a chain of matrix products: tens of milliseconds a row."""
    nodes = [helper.make_node("Unsqueeze", ["x", "last"], ["cube"]), helper.make_node("Mul", ["cube", "mix"], ["p0"])]
    nodes += [helper.make_node("MatMul", [f"p{index}", "mix"], [f"p{index + 1}"]) for index in range(products)]
    nodes += [
        helper.make_node("ReduceMean", [f"p{products}"], ["mean"], axes=[1, 2], keepdims=1),
        helper.make_node("Squeeze", ["mean", "last"], ["y"]),
    ]
    weights = {"last": np.array([2], np.int64), "mix": np.full((side, side), 1.0 / side, np.float32)}
    x, y = _value("x", TensorProto.FLOAT, ("batch", 1)), _value("y", TensorProto.FLOAT, ("batch", 1))
    return _save(path, nodes, [x], [y], weights)


def make_detector(path: Path) -> Path:
    """A YOLOv8 head of two classes on `images: FP32[batch, 3, 64, 64]`: `candidates: FP32[batch, 6, 10]`.

    Two boxes of class 1 around the middle, 20 x 10 and 18 x 10 pixels, whose scores are the image's mean value and 0.9
    of that; nothing else scores.
    """
    still = np.zeros((1, 6, 10), np.float32)
    still[0, :4, :2] = [[32, 32], [32, 32], [20, 18], [10, 10]]
    scored = np.zeros((1, 6, 10), np.float32)
    scored[0, 5, :2] = [1, 0.9]
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("ReduceMean", ["mean"], ["brightness"], axes=[1], keepdims=1),
        helper.make_node("Unsqueeze", ["brightness", "axis_last"], ["column"]),
        helper.make_node("Mul", ["column", "scored"], ["scores"]),
        helper.make_node("Add", ["scores", "still"], ["candidates"]),
    ]
    weights = {"still": still, "scored": scored, "axis_last": np.int64([2])}
    images = _value("images", TensorProto.FLOAT, ("batch", 3, 64, 64))
    return _save(path, nodes, [images], [_value("candidates", TensorProto.FLOAT, ("batch", 6, 10))], weights)


def make_sequence_typed(path: Path) -> Path:
    """`x: FP32[batch, 4] -> y: a sequence of tensors`, which no tensor protocol can carry."""
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["y"])]
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    return _save(path, nodes, [_value("x", TensorProto.FLOAT, ("batch", 4))], [y])


def _value(name: str, element_type: int, dims: Dims) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, list(dims))


def _save(
    path: Path,
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    weights: dict[str, npt.NDArray[np.generic] | np.generic] | None = None,
) -> Path:
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path

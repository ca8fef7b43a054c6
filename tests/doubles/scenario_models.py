"""ONNX models whose cost on a CPU is known by their making, for servers that are to be diagnosed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES = 8
CLASSES = 10


def make_worker(path: Path, *, side: int = 1024, products: int = 20) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8]` through dense layers: a batch of a few rows costs little more than one.

    Each layer reads its weights once a batch, as a small batch on a GPU does.
    """
    return _save(path, ["batch", FEATURES], _dense(FEATURES, side, products))


def make_reader(path: Path, *, side: int = 256, products: int = 6) -> Path:
    """`x: FP32[batch, sequence, 8] -> y` of the same shape; what it costs grows with rows times sequence."""
    return _save(path, ["batch", "sequence", FEATURES], _dense(FEATURES, side, products))


def make_grinder(path: Path, *, tokens: int = 1024) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8]`, as a reader of `tokens` copies of each row: twice the rows, twice the
    time."""
    nodes, weights = _dense(FEATURES, 256, 6)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["column"]),
        helper.make_node("Mul", ["column", "ones"], ["t_in"]),
        *nodes,
        helper.make_node("ReduceMean", ["t_out"], ["y"], axes=[1], keepdims=0),
    ]
    nodes[2].input[0], nodes[-2].output[0] = "t_in", "t_out"
    weights |= {"axis": np.array([1], np.int64), "ones": np.ones((1, tokens, 1), np.float32)}
    return _save(path, ["batch", FEATURES], (nodes, weights))


def make_echo(path: Path, *, width: int) -> Path:
    """`x: FP32[batch, width] -> y` of the same shape: nothing to compute, much to carry."""
    return _save(path, ["batch", width], ([helper.make_node("Identity", ["x"], ["y"])], {}))


def make_adder(path: Path, *, width: int = 4 << 20, sums: int = 6) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8]` by sums of long vectors: two numbers are read for each one made."""
    long = np.arange(width, dtype=np.float32).reshape(1, -1) / width
    weights = {"axis": np.array([1], np.int64), "first": np.array([0], np.int64), "one": np.array([1], np.int64)}
    nodes = [helper.make_node("Slice", ["x", "first", "one", "axis"], ["column"])]
    names = ["column", *(f"t{index}" for index in range(sums))]
    nodes += [helper.make_node("Add", [names[index], f"w{index}"], [names[index + 1]]) for index in range(sums)]
    nodes += [
        helper.make_node("ReduceMax", [names[-1]], ["most"], axes=[1], keepdims=1),
        helper.make_node("Add", ["x", "most"], ["y"]),
    ]
    return _save(path, ["batch", FEATURES], (nodes, weights | {f"w{index}": long + index for index in range(sums)}))


def make_image_classifier(path: Path) -> Path:
    """`images: FP32[batch, 3, 32, 32] -> scores: FP32[batch, 10]`: hardly any work after the image is prepared."""
    weights = np.random.default_rng(0).normal(size=(3, CLASSES)).astype(np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["scores"]),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 32, 32])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])
    return _write(path, helper.make_graph(nodes, "g", [images], [scores], [numpy_helper.from_array(weights, "w")]))


def _dense(features: int, side: int, products: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    shapes = [(features, side), *[(side, side)] * products, (side, features)]
    weights = {f"w{index}": random.normal(size=shape).astype(np.float32) / side for index, shape in enumerate(shapes)}
    names = ["x", *(f"t{index}" for index in range(len(shapes) - 1)), "y"]
    nodes = [
        helper.make_node("MatMul", [names[index], f"w{index}"], [names[index + 1]]) for index in range(len(shapes))
    ]
    return nodes, weights


def _save(path: Path, dims: list[str | int], graph: tuple[list[onnx.NodeProto], dict[str, np.ndarray]]) -> Path:
    nodes, weights = graph
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("x", "y"))
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return _write(path, helper.make_graph(nodes, "g", [x], [y], constants))


def _write(path: Path, graph: onnx.GraphProto) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path

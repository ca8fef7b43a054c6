"""ONNX models whose cost on a CPU is known by their making, for servers that are to be diagnosed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

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


def make_grinder(path: Path, *, tokens: int = 1024, side: int = 256, products: int = 6) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8]`, as a reader of `tokens` copies of each row: twice the rows, twice the
    time."""
    nodes, weights = _dense(FEATURES, side, products)
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


def make_ladder(path: Path, *, rungs: int, side: int = 64) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8]` by many products that depend on each other, and hardly compute."""
    return _save(path, ["batch", FEATURES], _dense(FEATURES, side, rungs))


def make_smoother(path: Path, *, side: int, passes: int) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8]` by softmaxes along either axis of a large square, row after row: each
    reads and writes all of it."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Unsqueeze", ["mean", "last"], ["point"]),
        helper.make_node("Mul", ["point", "across"], ["wide"]),
        helper.make_node("Add", ["wide", "down"], ["s0"]),
    ]
    nodes += [
        helper.make_node("Softmax", [f"s{index}"], [f"s{index + 1}"], axis=1 + index % 2) for index in range(passes)
    ]
    nodes += [
        helper.make_node("ReduceMax", [f"s{passes}"], ["most"], axes=[1, 2], keepdims=0),
        helper.make_node("Unsqueeze", ["most", "last_of_two"], ["column"]),
        helper.make_node("Add", ["x", "column"], ["y"]),
    ]
    ramp = np.arange(side, dtype=np.float32) / side
    weights = {
        "last": np.array([2], np.int64),
        "last_of_two": np.array([1], np.int64),
        "across": ramp.reshape(1, 1, side),
        "down": ramp.reshape(1, side, 1),
    }
    return _save(path, ["batch", FEATURES], (nodes, weights))


def make_talker(path: Path, *, width: int) -> Path:
    """`x: FP32[batch, 8] -> y: FP32[batch, 8], z: FP32[batch, width]`: much that few ask for."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["y"]),
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["mean", "ramp"], ["z"]),
    ]
    weights = {"two": np.array([2], np.float32), "ramp": np.arange(width, dtype=np.float32).reshape(1, -1) / width}
    return _save(path, ["batch", FEATURES], (nodes, weights), more={"z": ["batch", width]})


def make_selector(path: Path, *, rows: int = 64) -> Path:
    """`x: FP32[64, 8] -> places: INT64[2, any], y: FP32[64, 8]`: how large an answer is depends on what was sent."""
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Add", ["x", "x"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, FEATURES]) for name in ("x", "y"))
    places = helper.make_tensor_value_info("places", TensorProto.INT64, [2, "any"])
    return _write(path, helper.make_graph(nodes, "g", [x], [places, y]))


def make_doubler(path: Path, *, width: int) -> Path:
    """`x: FP32[batch, width] -> y` of the same shape, twice as large: what `make_echo` is, for engines that must do
    something."""
    return _save(path, ["batch", width], ([helper.make_node("Add", ["x", "x"], ["y"])], {}))


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


def _save(
    path: Path,
    dims: list[str | int],
    graph: tuple[list[onnx.NodeProto], dict[str, np.ndarray]],
    more: Mapping[str, list[str | int]] = MappingProxyType({}),
) -> Path:
    """`x` and `y` have the dims `dims`; `more` are those of further outputs."""
    nodes, weights = graph
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    outputs = {"y": dims, **more}
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return _write(path, helper.make_graph(nodes, "g", [x], told, constants))


def _write(path: Path, graph: onnx.GraphProto) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path

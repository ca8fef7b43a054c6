"""The models of the speed bars, made on the spot: deterministic, no download, dynamic batch."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SMALL_DIMS = (1024,)
"""Dims of the small identity's FP32 row: 4 KB."""

LARGE_DIMS = (3, 224, 224)
"""Dims of the large identity's FP32 row: 602 KB, an image as ResNet takes it."""

CNN_SIDE = 64
_WIDTHS = (32, 64, 128, 256)
_CLASSES = 1000
_SEED = 20250101
_GAIN_ROUNDS = 40

_CARD = """[batching]
max_batch_size = {max_batch_size}

[lanes]
count = 1
threads_per_lane = 1
"""


def add_model(repository: Path, name: str, model: onnx.ModelProto, max_batch_size: int) -> None:
    """Writes `model` and its card into a model repository: one lane, one ONNX Runtime thread."""
    onnx.save_model(model, str(add_card(repository, name, max_batch_size)))


def add_card(repository: Path, name: str, max_batch_size: int) -> Path:
    """Writes a card into a model repository, one lane, one ONNX Runtime thread; returns where its model has to lie.

    Raises:
        FileExistsError: the repository has such a model.
    """
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "model.toml").write_text(_CARD.format(max_batch_size=max_batch_size), encoding="utf-8")
    return folder / "1" / "model.onnx"


def identity_model(dims: tuple[int, ...]) -> onnx.ModelProto:
    """FP32[batch, *dims] `x` to the same `y`: no work, so that what remains is the server's own."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return _model("identity", [node], [], ("x", TensorProto.FLOAT, dims), ("y", TensorProto.FLOAT, dims))


def cnn_model() -> onnx.ModelProto:
    """A plain CNN, `image` UINT8[batch, 3, 64, 64] to `scores` FP32[batch, 1000].

    A stem that quarters the side, then four stages of two 3x3 convolutions; each stage after the first halves the
    side and doubles the width. As in any ImageNet classifier the late stages have few pixels and most weights, which
    is where a batch saves: the weights are read once for all rows.
    """
    generator = np.random.default_rng(_SEED)
    weights: list[onnx.TensorProto] = []
    nodes = [helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT)]
    nodes.append(helper.make_node("Mul", ["pixels", _constant(weights, "scale", np.float32(1 / 255))], ["scaled"]))
    current, channels = "scaled", 3
    layers = [("stem0", _WIDTHS[0], 2), ("stem1", _WIDTHS[0], 2)]
    for stage, width in enumerate(_WIDTHS):
        layers += [(f"stage{stage}_0", width, 2 if stage else 1), (f"stage{stage}_1", width, 1)]
    for name, width, stride in layers:
        spread = np.sqrt(2.0 / (channels * 9))
        kernel = generator.standard_normal((width, channels, 3, 3)) * spread
        inputs = [
            current,
            _constant(weights, f"{name}_w", kernel),
            _constant(weights, f"{name}_b", np.zeros(width)),
        ]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}_c"], strides=[stride] * 2, pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"{name}_c"], [name]))
        current, channels = name, width
    nodes.append(helper.make_node("GlobalAveragePool", [current], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    head = generator.standard_normal((channels, _CLASSES)) / np.sqrt(channels)
    nodes.append(helper.make_node("MatMul", ["features", _constant(weights, "head_w", head)], ["scores"]))
    image = ("image", TensorProto.UINT8, (3, CNN_SIDE, CNN_SIDE))
    return _model("cnn", nodes, weights, image, ("scores", TensorProto.FLOAT, (_CLASSES,)))


def batch_gain(model: onnx.ModelProto, size: int) -> float:
    """How much cheaper a row of `model` gets in a batch of `size`, on one ONNX Runtime thread and without a server.

    What a server's batching can gain from computing alone; beyond it lie only its own costs per batch.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(_SEED).integers(0, 256, (size, 3, CNN_SIDE, CNN_SIDE), dtype=np.uint8)
    alone_ns, together_ns = [], []
    for _ in range(_GAIN_ROUNDS):
        started_ns = time.perf_counter_ns()
        session.run(None, {"image": rows[:1]})
        between_ns = time.perf_counter_ns()
        session.run(None, {"image": rows})
        alone_ns.append(between_ns - started_ns)
        together_ns.append(time.perf_counter_ns() - between_ns)
    return statistics.median(alone_ns) * size / statistics.median(together_ns)


def _constant(weights: list[onnx.TensorProto], name: str, value: npt.ArrayLike) -> str:
    weights.append(numpy_helper.from_array(np.asarray(value, dtype=np.float32), name))
    return name


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    source: tuple[str, int, tuple[int, ...]],
    result: tuple[str, int, tuple[int, ...]],
) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(tensor, kind, ["batch", *dims]) for tensor, kind, dims in (source, result)]
    graph = helper.make_graph(nodes, name, values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model

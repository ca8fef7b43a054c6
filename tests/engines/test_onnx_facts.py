from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from engines.onnx_facts import OnnxNode, read_facts
from service.errors import ModelLoadFailed
from service.tensors import DType, TensorSpec
from tests.doubles.onnx_models import make_cnn, make_identity, make_sequence, make_string

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 4))
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", 4))
ONES = np.ones(4, np.float32)


def saved(
    path: Path,
    nodes: Sequence[NodeProto],
    weights: Sequence[TensorProto] = (),
    inputs: Sequence[ValueInfoProto] = (X,),
    *,
    opset: int = 19,
) -> Path:
    """A model that need not be valid: only its file is read."""
    graph = helper.make_graph(list(nodes), "g", list(inputs), [Y], list(weights))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def test_tensors_keep_the_names_of_their_dimensions(tmp_path: Path) -> None:
    path = make_sequence(tmp_path / "model.onnx")
    facts = read_facts(path)
    assert facts.inputs == (
        TensorSpec("input_ids", DType.INT64, ("batch", "sequence")),
        TensorSpec("attention_mask", DType.INT64, ("batch", "sequence")),
    )
    assert [tensor.dims for tensor in facts.outputs] == [("batch", "sequence", 8), ("batch", 8)]
    assert facts.nodes[1] == OnnxNode("", "Cast")
    assert (facts.precisions, facts.opset) == (frozenset(), 17)
    assert facts.nbytes == path.stat().st_size
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_dimensions_without_a_name_get_one(tmp_path: Path) -> None:
    path = make_identity(tmp_path / "model.onnx", dims=(None, 16))
    assert read_facts(path).inputs == (TensorSpec("x", DType.FP32, ("x_0", 16)),)


def test_weights_that_old_files_list_among_the_inputs_are_none(tmp_path: Path) -> None:
    listed = helper.make_tensor_value_info("w", TensorProto.FLOAT, (4,))
    node = helper.make_node("Add", ["x", "w"], ["y"])
    path = saved(tmp_path / "model.onnx", [node], [numpy_helper.from_array(ONES, "w")], (X, listed))
    assert [tensor.name for tensor in read_facts(path).inputs] == ["x"]


def quantize(zero_point: TensorProto) -> tuple[list[NodeProto], list[TensorProto]]:
    return (
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        [numpy_helper.from_array(np.float32(0.1), "scale"), zero_point],
    )


def branches() -> NodeProto:
    half = helper.make_node("Constant", [], ["h"], value=numpy_helper.from_array(np.float16([1]), "h"))
    graph = helper.make_graph([half], "then", [], [helper.make_tensor_value_info("h", TensorProto.FLOAT16, (1,))])
    return helper.make_node("If", ["x"], ["y"], then_branch=graph, else_branch=graph)


ZERO_INT8 = helper.make_tensor("zero", TensorProto.INT8, (), [0])
ZERO_FP8 = helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, (), [0.0])
HALF = numpy_helper.from_array(ONES.astype(np.float16), "w")
BF16 = helper.make_tensor("w", TensorProto.BFLOAT16, (1,), [1.0])
X16 = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ("batch", 4))


@pytest.mark.parametrize(
    ("nodes", "weights", "inputs", "expected"),
    [
        ([helper.make_node("Add", ["x", "w"], ["y"])], [HALF], (X,), {"fp16"}),
        ([helper.make_node("Add", ["x", "w"], ["y"])], [BF16], (X,), {"bf16"}),
        ([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)], [], (X,), {"bf16"}),
        ([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)], [], (X,), set()),
        ([helper.make_node("Identity", ["x"], ["y"])], [], (X16,), {"fp16"}),
        ([branches()], [], (X,), {"fp16"}),
        (*quantize(ZERO_INT8), (X,), {"int8"}),
        (*quantize(ZERO_FP8), (X,), {"fp8"}),
        ([helper.make_node("QuantizeLinear", ["x", "scale"], ["y"])], [], (X,), {"int8"}),
        (
            [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.FLOAT8E4M3FN)],
            [],
            (X,),
            {"fp8"},
        ),
        ([helper.make_node("TRT_FP8QuantizeLinear", ["x", "s"], ["y"], domain="trt")], [], (X,), {"fp8"}),
        # An image, or an index, in INT8 does not make a quantised model.
        ([helper.make_node("Add", ["x", "zero"], ["y"])], [ZERO_INT8], (X,), set()),
    ],
)
def test_the_precisions_that_a_model_carries(
    tmp_path: Path,
    nodes: list[NodeProto],
    weights: list[TensorProto],
    inputs: tuple[ValueInfoProto, ...],
    expected: set[str],
) -> None:
    assert read_facts(saved(tmp_path / "model.onnx", nodes, weights, inputs)).precisions == expected


def with_weights_outside(folder: Path) -> Path:
    path = make_cnn(folder / "model.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="model.weights", size_threshold=0)
    return path


def test_weights_may_lie_outside(tmp_path: Path) -> None:
    assert read_facts(with_weights_outside(tmp_path)).outputs[0].name == "logits"


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    path = with_weights_outside(tmp_path)
    (tmp_path / "model.weights").unlink()
    with pytest.raises(ModelLoadFailed, match=r"keeps its weights in 'model\.weights', which is missing"):
        read_facts(path)


def test_weights_that_are_cut_off_are_named(tmp_path: Path) -> None:
    path = with_weights_outside(tmp_path)
    whole = (tmp_path / "model.weights").read_bytes()
    (tmp_path / "model.weights").write_bytes(whole[:-1])
    with pytest.raises(ModelLoadFailed, match=rf"is cut off: it has {len(whole) - 1} bytes, at least"):
        read_facts(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"model\.onnx is no ONNX model: it has no graph"),
        (b"\xff" * 100, r"model\.onnx is no ONNX model, or it is cut off"),
        (b"ftrt plan", r"model\.onnx is no ONNX model"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelLoadFailed, match=words):
        read_facts(tmp_path / "model.onnx")


def test_a_model_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = make_cnn(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelLoadFailed, match="is no ONNX model"):
        read_facts(path)


def test_a_file_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"model\.onnx cannot be read: No such file"):
        read_facts(tmp_path / "model.onnx")


def test_text_is_no_tensor_for_tensorrt(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"input 'x' has type 8 of ONNX's types.*it takes BF16, BOOL, FP16"):
        read_facts(make_string(tmp_path / "model.onnx"))


def test_without_the_package_onnx_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ModelLoadFailed, match=r"pip install -e '\.\[build\]'"):
        read_facts(tmp_path / "model.onnx")

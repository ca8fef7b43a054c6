"""The inspector's JSON, old and new."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.errors import ModelLoadFailed
from service.runtime.trt.inspector import EngineInfo, LayerInfo, LayerTensor, inspect, parse
from tests.service.runtime.trt.conftest import FakeBench

SAMPLE = Path(__file__).parent / "samples" / "inspector_8.6.json"
"""One layer of each kind of ResNet-50 on an H200, as TensorRT 8.6 listed them."""

CONV = '{"Name": "Conv_0 + Relu_1", "LayerType": "CaskConvolution", "TacticName": "sm90\afp16", "StreamId": 0}'


def test_the_engine_lists_its_layers(bench: FakeBench) -> None:
    engine = bench.open("sequence")._engine
    info = inspect(engine)
    if bench.generation == "11-lean":
        assert info is None
        return
    assert info is not None
    assert [layer.kind for layer in info.layers] == ["PointWise"] * 2
    assert info.tensors == ("x", "y")


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        (f'{{"Layers": [{CONV}], "Bindings": ["x", "y", "x [profile 1]", "y [profile 1]"]}}', ("x", "y")),
        (f'{{"Layers": [{CONV}], "I/O Tensors": [{{"Name": "x", "IOMode": "Input"}}]}}', ("x",)),
    ],
)
def test_both_forms_with_control_characters(text: str, tensors: tuple[str, ...]) -> None:
    info = parse(text)
    assert info.tensors == tensors
    assert info.layers[0].name == "Conv_0 + Relu_1"
    assert info.layers[0].kind == "CaskConvolution"
    assert info.layers[0].details["TacticName"] == "sm90\afp16"


def test_a_real_engine_s_layers() -> None:
    info = parse(SAMPLE.read_text(encoding="utf-8"))
    assert info.tensors == ("x", "y")
    by_kind = {layer.kind: layer for layer in reversed(info.layers)}
    convolution = by_kind["CaskConvolution"]
    assert convolution.name == "/conv1/Conv + /relu/Relu"
    assert convolution.tactic.startswith("sm90_xmma_fprop_image_first_layer")
    assert convolution.outputs[0].dims == (8, 64, 112, 112)
    assert convolution.outputs[0].format == "Channel major FP16 format where channel % 8 == 0"
    assert convolution.precision == "FP16"
    assert by_kind["Constant"].tactic == ""
    assert [layer.precision for layer in info.layers if layer.kind == "Reformat"] == ["FP32→FP16"] * 2
    assert {layer.profile for layer in info.layers} == {0, 1}


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (
            {"Name": "t", "Dimensions": [2, 3], "Format/Datatype": "Thirty-two wide channel vectorized Int8 format"},
            LayerTensor("t", (2, 3), "INT8", "Thirty-two wide channel vectorized Int8 format"),
        ),
        (
            {"Name": "t", "Dimensions": [2, -1], "Format": "Row major linear", "Datatype": "Half"},
            LayerTensor("t", (2, -1), "FP16", "Row major linear"),
        ),
        ({"Name": "t", "Format": "LINEAR", "DataType": "BFloat16"}, LayerTensor("t", (), "BF16", "LINEAR")),
        ({"Name": "t", "Dimensions": [1]}, LayerTensor("t", (1,), "", "")),
    ],
)
def test_a_tensor_in_both_forms(tensor: dict[str, object], expected: LayerTensor) -> None:
    layer = LayerInfo("a", "A", {"Inputs": [tensor], "Outputs": [tensor]})
    assert layer.inputs == layer.outputs == (expected,)
    assert layer.precision == expected.dtype


@pytest.mark.parametrize(
    ("details", "tactic"),
    [
        ({"TacticName": "sm90_gemm", "TacticValue": "0x1"}, "sm90_gemm"),
        ({"TacticValue": "0x00000000000203e8"}, "0x00000000000203e8"),
        ({"TacticValue": "0x0000000000000000"}, ""),
        ({}, ""),
    ],
)
def test_tactics(details: dict[str, object], tactic: str) -> None:
    assert LayerInfo("a", "A", details).tactic == tactic


def test_names_alone() -> None:
    assert parse('{"Layers": ["a", "b"], "Bindings": []}') == EngineInfo(
        (LayerInfo("a", "", {}), LayerInfo("b", "", {})), ()
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Layers": [3], "Bindings": []}', '{"Layers": []}'])
def test_what_is_no_description(text: str) -> None:
    with pytest.raises(ModelLoadFailed, match="no description of an engine"):
        parse(text)

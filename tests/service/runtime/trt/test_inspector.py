"""The inspector's JSON, old and new."""

from __future__ import annotations

import pytest

from service.errors import ModelLoadFailed
from service.runtime.trt.inspector import EngineInfo, LayerInfo, inspect, parse
from tests.service.runtime.trt.conftest import FakeBench

CONV = '{"Name": "Conv_0 + Relu_1", "LayerType": "CaskConvolution", "TacticName": "sm90\afp16", "StreamId": 0}'


def test_the_engine_lists_its_layers(bench: FakeBench) -> None:
    engine = bench.open("sequence")._engine
    info = inspect(engine)
    if bench.generation == "11-lean":
        assert info is None
        return
    assert info is not None
    assert [layer.kind for layer in info.layers] == ["PointWise"]
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


def test_names_alone() -> None:
    assert parse('{"Layers": ["a", "b"], "Bindings": []}') == EngineInfo(
        (LayerInfo("a", "", {}), LayerInfo("b", "", {})), ()
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Layers": [3], "Bindings": []}', '{"Layers": []}'])
def test_what_is_no_description(text: str) -> None:
    with pytest.raises(ModelLoadFailed, match="no description of an engine"):
        parse(text)

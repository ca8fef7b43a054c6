from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engines.network import create_network, explain, parse
from engines.onnx_facts import OnnxFacts, OnnxNode
from engines.precision import Precision
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_builder import ILogger
from tests.doubles.fake_tensorrt_parser import NamedParserError, ParserError
from tests.doubles.onnx_models import make_identity

FACTS = OnnxFacts(
    inputs=(),
    outputs=(),
    nodes=(OnnxNode("stem", "Conv"), OnnxNode("", "GroupQueryAttention")),
    precisions=frozenset(),
    opset=17,
    nbytes=1,
    sha256="0",
)


@pytest.mark.parametrize(
    ("generation", "is_strong", "bits"),
    [("8.6", False, 0b01), ("10", False, 0b01), ("10", True, 0b11), ("10.0", True, 0b11), ("11", True, 0b01)],
)
def test_flags_have_the_number_that_the_version_gives_them(generation: str, is_strong: bool, bits: int) -> None:
    module = fake_tensorrt(FakeCuda(), generation)
    builder = module.Builder(ILogger())
    assert create_network(module, builder, Precision("as-is", is_strong)).flags == bits


@pytest.mark.parametrize("generation", ["8.6", "11"])
@pytest.mark.parametrize("operator", ["InstanceNormalization", "Identity"])
def test_instance_normalisation_is_tensorrts_own(tmp_path: Path, generation: str, operator: str) -> None:
    module = fake_tensorrt(FakeCuda(), generation)
    path = make_identity(tmp_path / "model.onnx")
    network = create_network(module, module.Builder(ILogger()), Precision("as-is", is_strongly_typed=False))
    facts = replace(FACTS, nodes=(OnnxNode("norm", operator),))
    parser = parse(module, network, ILogger(), path, facts)
    wanted = [module.OnnxParserFlag.NATIVE_INSTANCENORM] if operator == "InstanceNormalization" else []
    assert parser.flags == wanted


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (
            [ParserError(1, "No importer registered for op: GroupQueryAttention")],
            ["TensorRT cannot run model.onnx: node '1' (GroupQueryAttention): No importer", "Replace the operator"],
        ),
        ([ParserError(0, "Unsupported type DOUBLE")], ["node 'stem' (Conv)", "Cast to INT8, INT32"]),
        ([NamedParserError(7, "Invalid Node", "decoder/3", "Resize")], ["node 'decoder/3' (Resize): Invalid Node"]),
        ([NamedParserError(-1, "Failed to open file: w")], ["the model: Failed to open file", "weights lie complete"]),
        ([ParserError(9, "something else")], ["the model: something else", "Export the model again"]),
        ([ParserError(0, "twice"), ParserError(0, "twice")], ["node 'stem' (Conv): twice. Export"]),
        ([ParserError(0, f"error {n}") for n in range(7)], ["error 4; and 2 more."]),
        ([], ["refuses model.onnx without a reason"]),
    ],
)
def test_errors_of_the_parser_name_the_node_and_a_way_out(errors: list[ParserError], words: list[str]) -> None:
    message = explain(errors, "model.onnx", FACTS)
    assert [each for each in words if each not in message] == []

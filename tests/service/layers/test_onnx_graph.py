"""Nodes of real ONNX models in concrete shapes, and what of them fills in a trace."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.layers.completed import completed
from service.layers.flops import flops
from service.layers.onnx_graph import GraphNode, OnnxGraph, is_region, read_graph, region_flops
from service.layers.traffic import nbytes
from service.runtime.layer_trace import Operand, Operation, OperationKind, TracedLayer
from tests.doubles import onnx_models

BLOCK = OnnxGraph(
    (
        GraphNode("/gather", 0.0),
        GraphNode("/query", 100.0, 16, ("weights",)),
        GraphNode("/scores", 30.0),
        GraphNode("/pool", None),
        GraphNode("/head", 5.0, 8),
    ),
    "FP32",
)
WHOLE = "{ForeignNode[/gather.../head]}"


def attention_model(path: Path) -> Path:
    """`ids: INT64[n, s] -> y: FP32[n, s, s]`: a lookup of 4 numbers, a product with weights, one with itself."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["tokens"], name="/gather"),
        helper.make_node("MatMul", ["tokens", "weights"], ["query"], name="/query"),
        helper.make_node("Transpose", ["tokens"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["query", "turned"], ["y"], name="/scores"),
    ]
    weights = [
        numpy_helper.from_array(np.zeros((100, 4), np.float32), "table"),
        numpy_helper.from_array(np.zeros((4, 4), np.float32), "weights"),
    ]
    ends = (
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "s"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(nodes, "g", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_products_in_the_bucket_s_shapes(tmp_path: Path) -> None:
    graph = read_graph(attention_model(tmp_path / "m.onnx"), {"ids": (2, 8)})
    assert graph is not None
    assert graph.nodes == (
        GraphNode("/gather", 0.0, 0, ("table",)),
        GraphNode("/query", 2.0 * 16 * 4 * 4, 16, ("weights",)),
        GraphNode("turned", 0.0),
        GraphNode("/scores", 2.0 * 2 * 8 * 8 * 4),
    )
    assert graph.dtype == "FP32"


def test_convolutions(tmp_path: Path) -> None:
    graph = read_graph(onnx_models.make_cnn(tmp_path / "m.onnx"), {"image": (2, 3, 64, 64)})
    assert graph is not None
    first, *_ = [node for node in graph.nodes if node.flops]
    assert first.flops is not None
    assert first.flops % (2 * 2 * 8 * 3 * 9) == 0
    assert first.weight_count >= 8 * 3 * 9
    assert None not in [node.flops for node in graph.nodes]


def test_without_the_inputs_dims_products_are_unknown(tmp_path: Path) -> None:
    graph = read_graph(attention_model(tmp_path / "m.onnx"), {})
    assert graph is not None
    assert [node.flops for node in graph.nodes] == [0.0, None, 0.0, None]


def test_a_file_that_is_no_model_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff\xff")
    with caplog.at_level(logging.INFO):
        assert read_graph(tmp_path / "m.onnx", {}) is None
    assert "m.onnx cannot be read" in caplog.text


ALL = ("/gather", "/query", "/scores", "/pool", "/head")


@pytest.mark.parametrize(
    ("name", "elsewhere", "nodes"),
    [
        (WHOLE, (), ALL),
        (WHOLE, ("/pool", "/query"), ("/gather", "/scores", "/head")),
        ("{ForeignNode[/query.../scores]}", (), ("/query", "/scores")),
        ("{ForeignNode[weights.../scores]}", (), ("/query", "/scores")),
        ("{ForeignNode[weights + (Unnamed Layer* 3) [Shuffle].../scores]}", (), ("/query", "/scores")),
        ("{ForeignNode[(Unnamed Layer* 3) [Shuffle].../scores]}", ("/gather",), ("/query", "/scores")),
        ("{ForeignNode[/query.../scores + /pool]}", (), ("/query", "/scores", "/pool")),
        ("{ForeignNode[/pool...(Unnamed Layer* 9) [Softmax]]}", (), ("/pool", "/head")),
        ("{ForeignNode[/head.../gather]}", (), ()),
        ("/query", (), ()),
    ],
)
def test_regions(name: str, elsewhere: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    assert tuple(node.name for node in BLOCK.region(name, elsewhere, is_only=True)) == nodes


def test_between_neighbours_a_region_s_end_must_be_known() -> None:
    name = "{ForeignNode[/query...(Unnamed Layer* 9) [Softmax]]}"
    assert BLOCK.region(name, (), is_only=False) == ()
    assert BLOCK.region("{ForeignNode[(Unnamed).../query]}", (), is_only=False) == BLOCK.nodes[:2]


def test_what_is_a_region() -> None:
    assert is_region(WHOLE)
    assert not is_region("/a/Conv + /a/Relu")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [((), None), (BLOCK.nodes[:3], 130.0), (BLOCK.nodes, None)],
)
def test_flops_of_regions(nodes: tuple[GraphNode, ...], expected: float | None) -> None:
    assert region_flops(nodes) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("/query", "/scores"), 130.0),
        (("/query", "/pool"), None),
        (("/query", "/absent"), None),
        (("/absent",), None),
        ((), None),
    ],
)
def test_flops_of_named_nodes(names: tuple[str, ...], expected: float | None) -> None:
    assert BLOCK.flops_of(names) == expected


IDS, OUT = Operand((2, 8), "INT32"), Operand((2, 8, 8), "FP16")


def traced(name: str, kind: OperationKind, origin: tuple[str, ...] = (), out: Operand = OUT) -> TracedLayer:
    return TracedLayer(
        Operation(name=name, word="Myelin", kind=kind, inputs=(IDS,), outputs=(out,), origin=origin), (1.0,)
    )


def test_a_region_and_an_attention_are_completed() -> None:
    (region, pool, mha) = completed(
        [
            traced(WHOLE, OperationKind.UNKNOWN),
            traced("/pool", OperationKind.POOLING, ("/pool",)),
            traced("_gemm_mha_v2", OperationKind.ATTENTION, ("/scores", "/query")),
        ],
        BLOCK,
        "FP16",
    )
    assert flops(region.operation) == 5.0, "what other layers came from is not counted twice"
    assert nbytes(region.operation) == 2 * 8 * 4 + 8 * 2 + 2 * 8 * 8 * 2
    assert (region.operation.kind, region.operation.dtype) == (OperationKind.REGION, "FP16")
    assert region.operation.origin == ("/gather", "/head")
    assert pool.operation.known_flops is None
    assert flops(mha.operation) == 130.0


def test_regions_one_after_another_share_no_node() -> None:
    layers = completed(
        [
            traced("{ForeignNode[(made up).../query]}", OperationKind.UNKNOWN),
            traced("{ForeignNode[(made up).../scores]}", OperationKind.UNKNOWN),
        ],
        BLOCK,
        "FP16",
    )
    assert [layer.operation.origin for layer in layers] == [("/gather", "/query"), ("/scores", "/scores")]
    assert [flops(layer.operation) for layer in layers] == [100.0, 30.0]


def test_what_the_graph_does_not_tell_stays_unknown() -> None:
    (stranger, untyped) = completed(
        [traced("{ForeignNode[/x.../y]}", OperationKind.UNKNOWN), traced(WHOLE, OperationKind.UNKNOWN)], BLOCK, ""
    )
    assert stranger.operation.kind is OperationKind.UNKNOWN
    assert (flops(untyped.operation), untyped.operation.dtype) == (None, "")
    assert nbytes(untyped.operation) is None

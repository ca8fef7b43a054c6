"""ONNX Runtime's nodes in common words."""

from __future__ import annotations

from typing import Any

import pytest

from service.layers.flops import flops
from service.layers.traffic import nbytes
from service.runtime.layer_trace import Operand, OperationKind
from service.runtime.onnx.node_times import kind_of, node_operation, node_times


def event(
    word: str, inputs: list[dict[str, list[int]]], outputs: list[dict[str, list[int]]], **rest: Any
) -> dict[str, Any]:
    told = {"op_name": word, "node_index": "3", "input_type_shape": inputs, "output_type_shape": outputs}
    return {"cat": "Node", "name": "/n_kernel_time", "ts": 1, "dur": 10, "args": told, **rest}


def fp32(*dims: int) -> dict[str, list[int]]:
    return {"float": list(dims)}


def test_a_convolution_with_its_weights() -> None:
    found = node_operation(
        event(
            "Conv",
            [fp32(1, 3, 224, 224), fp32(16, 3, 3, 3), fp32(16)],
            [fp32(1, 16, 112, 112)],
            name="/c_nchwc_kernel_time",
        )
    )
    assert (found.kind, found.dtype, found.origin) == (OperationKind.CONVOLUTION, "FP32", ("/c",))
    assert flops(found) == 2 * 16 * 112 * 112 * 27
    assert nbytes(found) == 4 * (3 * 224 * 224 + 16 * 27 + 16 + 16 * 112 * 112)


@pytest.mark.parametrize(
    ("word", "inputs", "output", "expected"),
    [
        ("MatMul", [fp32(2, 32, 384)], fp32(2, 32, 1536), 2 * 64 * 384 * 1536),
        ("Gemm", [fp32(1, 1280), fp32(4)], fp32(1, 4), 2 * 1280 * 4),
        ("Gemm", [fp32(1, 1280), fp32(4, 1280), fp32(4)], fp32(1, 4), 2 * 1280 * 4),
        ("FusedMatMul", [fp32(1, 8, 40, 15), fp32(1, 8, 15, 40)], fp32(1, 8, 40, 40), 2 * 8 * 40 * 40 * 15),
        ("FusedMatMul", [fp32(1, 120, 40)], fp32(1, 40, 300), 2 * 40 * 120 * 300),
        ("MatMul", [fp32(3, 7)], fp32(2, 5), None),
        ("MatMul", [fp32(0, 7)], fp32(0, 5), 0),
        ("MatMul", [], fp32(2, 3), None),
        ("ConvTranspose", [fp32(1, 24, 80, 80)], fp32(1, 24, 160, 160), None),
        ("Gelu", [fp32(2, 5)], fp32(2, 5), 60),
        ("Transpose", [fp32(2, 5)], fp32(5, 2), 0),
        ("NonZero", [fp32(2, 5)], {"int64": [2, 4]}, None),
    ],
)
def test_flops_of_nodes(
    word: str, inputs: list[dict[str, list[int]]], output: dict[str, list[int]], expected: float | None
) -> None:
    assert flops(node_operation(event(word, inputs, [output]))) == expected


def test_packed_weights_count_as_read() -> None:
    found = node_operation(event("Gemm", [fp32(1, 1280), fp32(4)], [fp32(1, 4)]))
    assert found.weights == (Operand((1280, 4), "FP32"), Operand((4,), "FP32"))
    assert nbytes(found) == 4 * (1280 + 1280 * 4 + 4 + 4)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ReduceMean", OperationKind.REDUCTION),
        ("SkipLayerNormalization", OperationKind.NORMALISATION),
        ("ReorderInput", OperationKind.REFORMAT),
        ("DequantizeLinear", OperationKind.QUANTIZE),
        ("Gather", OperationKind.GATHER),
        ("Shape", OperationKind.NOTHING),
        ("GlobalAveragePool", OperationKind.POOLING),
        ("Softmax", OperationKind.SOFTMAX),
        ("MyOwnOperator", OperationKind.UNKNOWN),
    ],
)
def test_operators(word: str, expected: OperationKind) -> None:
    assert kind_of(word) is expected


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("/a/Conv", ("/a/Conv",)),
        ("/a/Conv_nchwc", ("/a/Conv",)),
        ("/a/MatMul/MatMulScaleFusion/", ("/a/MatMul",)),
        ("Transpose_token_12", ("Transpose",)),
        ("", ()),
    ],
)
def test_names_lose_what_onnx_runtime_adds(name: str, origin: tuple[str, ...]) -> None:
    found = node_operation(event("Add", [fp32(1)], [fp32(1)], name=f"{name}_kernel_time"))
    assert found.origin == origin
    assert found.name == (name or "Add")


def test_medians_without_the_first_runs_in_the_order_of_execution() -> None:
    def node(index: int, ts: int, dur: int) -> dict[str, Any]:
        return event("Add", [fp32(1)], [fp32(1)], ts=ts, dur=dur) | {
            "args": {"op_name": "Add", "node_index": str(index)},
            "name": f"/{index}_kernel_time",
        }

    runs = [node(index, ts=100 * run + index, dur=dur) for run, dur in enumerate((900, 5, 9, 7)) for index in (2, 1)]
    others = [{"cat": "Session", "name": "model_run", "dur": 5, "ts": 1}, event("Add", [], [], name="/1_fence_before")]
    found = node_times([*runs, *others], 1)
    assert [(layer.operation.name, layer.time_s) for layer in found] == [("/1", 7e-6), ("/2", 7e-6)]

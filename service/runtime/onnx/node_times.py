"""What ONNX Runtime's profiler writes of a run's nodes, in the words of `runtime.layer_trace`. Pure.

A node is told with its operator, and with type and shape of what it reads and writes in the very run. Weights that were
packed when the session was made are not told: then what they are follows from the node's other tensors, or is unknown.
Names are those after ONNX Runtime's own fusions, and say the ONNX node that a fused one ends with.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from service.runtime.layer_trace import Operand, Operation, OperationKind, TracedLayer

_KERNEL_TIME = "_kernel_time"
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "NhwcFusedConv", "NhwcConv", "QLinearConv", "ConvInteger"})
_DECONVOLUTIONS = frozenset({"ConvTranspose", "ConvTransposeWithDynamicPads"})
_PRODUCTS = frozenset(
    {"MatMul", "FusedMatMul", "FusedMatMulActivation", "Gemm", "FusedGemm", "MatMulInteger", "DynamicQuantizeMatMul"}
)
_POOLINGS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"})
_NORMALISATIONS = frozenset(
    {
        "BatchNormalization",
        "EmbedLayerNormalization",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "LpNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)
_COPIES = frozenset(
    {"Concat", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze", "Tile"}
    | {"Transpose", "Unsqueeze", "Upsample", "DepthToSpace", "SpaceToDepth"}
)
_STEPS: Mapping[str, int] = {
    **dict.fromkeys(("Abs", "Add", "And", "Ceil", "Clip", "Div", "Equal", "Erf", "Exp", "Floor", "Greater"), 1),
    **dict.fromkeys(("GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or"), 1),
    **dict.fromkeys(("PRelu", "Pow", "Reciprocal", "Relu", "LeakyRelu", "Round", "Sqrt", "Sub", "Where"), 1),
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu"), 6),
    **dict.fromkeys(("Sigmoid", "Tanh", "Elu", "Softplus"), 4),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), 4),
}
"""Arithmetic steps per element: one, or what the usual formula of the function takes. Bytes bound these anyway."""

_TYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "double": "FP64",
    "float": "FP32",
    "float16": "FP16",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "int8": "INT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "uint8": "UINT8",
}
_OWN_SUFFIX = re.compile(r"(?:_nchwc|_token_\d+|/\w+Fusion/?)+$")


def node_times(events: Iterable[Mapping[str, Any]], skipped_runs: int) -> tuple[TracedLayer, ...]:
    """Every node with its times, in the order of execution.

    Args:
        events: of the profiler's file.
        skipped_runs: runs at the beginning that do not count.
    """
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    last: dict[tuple[str, str], tuple[float, Mapping[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "Node" and str(event["name"]).endswith(_KERNEL_TIME):
            key = (str(event["args"].get("node_index", "")), str(event["name"]))
            times[key].append(float(event["dur"]) / 1e6)
            last[key] = (float(event["ts"]), event)
    ordered = sorted(times, key=lambda key: last[key][0])
    return tuple(
        TracedLayer(node_operation(last[key][1]), tuple(times[key][skipped_runs:]))
        for key in ordered
        if len(times[key]) > skipped_runs
    )


def node_operation(event: Mapping[str, Any]) -> Operation:
    """The node of one event."""
    told = event["args"]
    word = str(told.get("op_name", ""))
    name = str(event["name"]).removesuffix(_KERNEL_TIME)
    kind = kind_of(word)
    inputs, outputs = (_operands(told.get(key, ())) for key in ("input_type_shape", "output_type_shape"))
    weights: tuple[Operand, ...] = ()
    if kind in (OperationKind.CONVOLUTION, OperationKind.DECONVOLUTION):
        inputs, weights = inputs[:1], _convolution_weights(inputs, outputs)
    elif kind is OperationKind.MATRIX_PRODUCT:
        inputs, weights = _factors(inputs, outputs)
    return Operation(
        name=name or word,
        word=word,
        kind=kind,
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        steps=_STEPS.get(word, 1),
        dtype=inputs[0].dtype if inputs else outputs[0].dtype if outputs else "",
        origin=_origin(name),
    )


def kind_of(word: str) -> OperationKind:
    """What an operator computes, by its name."""
    for kind, words in (
        (OperationKind.CONVOLUTION, _CONVOLUTIONS),
        (OperationKind.DECONVOLUTION, _DECONVOLUTIONS),
        (OperationKind.MATRIX_PRODUCT, _PRODUCTS),
        (OperationKind.POOLING, _POOLINGS),
        (OperationKind.POINTWISE, _STEPS),
        (OperationKind.NORMALISATION, _NORMALISATIONS),
        (OperationKind.COPY, _COPIES),
        (OperationKind.SOFTMAX, ("Softmax", "LogSoftmax")),
        (OperationKind.REFORMAT, ("ReorderInput", "ReorderOutput", "Cast")),
        (OperationKind.QUANTIZE, ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")),
        (OperationKind.GATHER, ("Gather", "GatherElements", "GatherND")),
        (OperationKind.NOTHING, ("Shape", "Size", "Constant", "ConstantOfShape", "Range")),
    ):
        if word in words:
            return kind
    return OperationKind.REDUCTION if word.startswith("Reduce") else OperationKind.UNKNOWN


def _convolution_weights(inputs: Sequence[Operand], outputs: Sequence[Operand]) -> tuple[Operand, ...]:
    """Weights and bias, whatever is told of them: the former have as many dims as the images."""
    images = len(outputs[0].dims) if outputs else 0
    return tuple(inputs[1:]) if len(inputs) > 1 and len(inputs[1].dims) == images else ()


def _factors(inputs: Sequence[Operand], outputs: Sequence[Operand]) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """The factors and, where weights were packed, those as they must have been.

    An output of m rows and n columns, and a factor of m k numbers, whichever way it lies, need weights of k n.
    """
    if len(inputs) > 1 and len(inputs[1].dims) > 1:
        return tuple(inputs), ()
    columns = outputs[0].dims[-1] if outputs and outputs[0].dims else 0
    rows = math.prod(outputs[0].dims) // columns if columns else 0
    if not inputs or not rows or math.prod(inputs[0].dims) % rows:
        return tuple(inputs), ()
    packed = Operand((math.prod(inputs[0].dims) // rows, columns), inputs[0].dtype)
    return tuple(inputs[:1]), (packed, *inputs[1:])


def _operands(told: Iterable[Mapping[str, Sequence[int]]]) -> tuple[Operand, ...]:
    return tuple(Operand(tuple(map(int, dims)), _TYPES.get(dtype, "")) for each in told for dtype, dims in each.items())


def _origin(name: str) -> tuple[str, ...]:
    node = _OWN_SUFFIX.sub("", name)
    return (node,) if node else ()

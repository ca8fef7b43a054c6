"""What TensorRT's inspector says of a layer, in the words of `runtime.layer_trace`; for 8.6, 10 and 11 alike. Pure.

Two generations of layers occur. Older ones say in `ParameterType` what they are, with the window and the number of
weights. Those that Myelin makes (all of a transformer on 8.6, most layers from 10 on) have a kind such as `gemm` or
`kgen`, list their constants as tensors, and are named after the steps that they fuse: `__myl_AddCastMulSum_myl0_3`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from service.runtime.layer_trace import MATRIX_KINDS, Operand, Operation, OperationKind
from service.runtime.trt.inspector import LayerInfo, LayerTensor, data_type, layer_tensor, without_profile

_BY_PARAMETER: Mapping[str, OperationKind] = {
    "convolution": OperationKind.CONVOLUTION,
    "deconvolution": OperationKind.DECONVOLUTION,
    "fullyconnected": OperationKind.MATRIX_PRODUCT,
    "matrixmultiply": OperationKind.MATRIX_PRODUCT,
    "pooling": OperationKind.POOLING,
    "activation": OperationKind.POINTWISE,
    "elementwise": OperationKind.POINTWISE,
    "pointwise": OperationKind.POINTWISE,
    "pointwisev2": OperationKind.POINTWISE,
    "scale": OperationKind.POINTWISE,
    "select": OperationKind.POINTWISE,
    "unary": OperationKind.POINTWISE,
    "softmax": OperationKind.SOFTMAX,
    "reduce": OperationKind.REDUCTION,
    "normalization": OperationKind.NORMALISATION,
    "quantize": OperationKind.QUANTIZE,
    "dequantize": OperationKind.QUANTIZE,
    "reformat": OperationKind.REFORMAT,
    "cast": OperationKind.REFORMAT,
    "concatenation": OperationKind.COPY,
    "resize": OperationKind.COPY,
    "shuffle": OperationKind.COPY,
    "slice": OperationKind.COPY,
    "gather": OperationKind.GATHER,
    "constant": OperationKind.NOTHING,
    "noop": OperationKind.NOTHING,
    "shape": OperationKind.NOTHING,
}

_BY_WORD: tuple[tuple[str, OperationKind], ...] = (
    ("deconvolution", OperationKind.DECONVOLUTION),
    ("convolution", OperationKind.CONVOLUTION),
    ("gemm", OperationKind.MATRIX_PRODUCT),
    ("matrixmultiply", OperationKind.MATRIX_PRODUCT),
    ("pooling", OperationKind.POOLING),
    ("softmax", OperationKind.SOFTMAX),
    ("reformat", OperationKind.REFORMAT),
    ("pointwise", OperationKind.POINTWISE),
    ("kgen", OperationKind.POINTWISE),
    ("fusion", OperationKind.POINTWISE),
    ("reduce", OperationKind.REDUCTION),
    ("gather", OperationKind.GATHER),
    ("reshape", OperationKind.COPY),
    ("shuffle", OperationKind.COPY),
    ("slice", OperationKind.COPY),
    ("concat", OperationKind.COPY),
    ("resize", OperationKind.COPY),
    ("noop", OperationKind.NOTHING),
    ("constant", OperationKind.NOTHING),
    ("shape_call", OperationKind.NOTHING),
    ("signal", OperationKind.NOTHING),
    ("wait", OperationKind.NOTHING),
    ("trainstation", OperationKind.NOTHING),
)
"""The first that the layer's type contains decides: `CaskGemmConvolution` is a convolution."""

_FUSED = ("kgen", "fusion")
_ATTENTION = re.compile(r"f?mha", re.IGNORECASE)
_STEP = re.compile(r"[A-Z][a-z0-9]+")
_MYELIN_STEPS = re.compile(r"__myl_(?P<steps>[A-Za-z0-9]+?)_myl\d")
_PRODUCT_STEPS = frozenset({"Fc", "Gemm", "Mma", "Matmul", "Conv"})
_ONNX_LAYER = re.compile(r"\[ONNX Layer: (.*?)\](?=[\x1e\x1f\[]|\s*$)")
_REFORMATTED = re.compile(r"^Reformatting CopyNode for .*?Tensor \d+ to (?P<of>.+)$")
_REFORMATTING = "Reformatting CopyNode"
_MADE_UP = "(Unnamed Layer"
_QUANTIZED = re.compile(r"quantize(?:linear)?", re.IGNORECASE)


def operation(layer: LayerInfo) -> Operation:
    """The layer in common words; what it does not say stays empty."""
    details, kind = layer.details, kind_of(layer)
    inputs, outputs = tuple(map(_operand, layer.inputs)), tuple(map(_operand, layer.outputs))
    return Operation(
        name=layer.name,
        word=layer.kind,
        kind=kind,
        inputs=inputs,
        outputs=outputs,
        weights=_weights(details),
        kernel=tuple(map(int, details.get("Kernel", details.get("WindowSize", ())))),
        groups=int(details.get("Groups", 1)),
        steps=max(1, len(_steps(layer))),
        dtype=_dtype(kind, inputs, outputs, layer.tactic),
        tactic=layer.tactic,
        origin=origin_of(layer),
    )


def kind_of(layer: LayerInfo) -> OperationKind:
    """What a layer computes, by its parameters' type, else by its own, else by the steps that it fuses."""
    parameter = str(layer.details.get("ParameterType", "")).lower()
    word = layer.kind.lower()
    if "noop" in word:
        return OperationKind.NOTHING
    if _is_quantizing(layer, parameter):
        return OperationKind.QUANTIZE
    if parameter in _BY_PARAMETER:
        return _BY_PARAMETER[parameter]
    if "foreignnode" in layer.name.lower():
        return OperationKind.UNKNOWN  # a part of the network as one layer
    found = next((kind for part, kind in _BY_WORD if part in word), OperationKind.UNKNOWN)
    if any(part in word for part in _FUSED):
        return _fused_kind(layer)
    if found is OperationKind.MATRIX_PRODUCT and _ATTENTION.search(f"{layer.name} {layer.tactic}"):
        return OperationKind.ATTENTION
    return found


def origin_of(layer: LayerInfo) -> tuple[str, ...]:
    """The ONNX nodes that a layer came from: of its metadata, or on older versions of its name.

    Names join nodes with ` + ` where they are fused one after another, with ` || ` where side by side.
    """
    told = _ONNX_LAYER.findall(str(layer.details.get("Metadata", "")))
    if told:
        return tuple(dict.fromkeys(told))
    name = without_profile(layer.name)
    reformatted = _REFORMATTED.match(name)
    name = reformatted["of"] if reformatted else name
    if "ForeignNode" in name or name.startswith(("__my", _REFORMATTING)):
        return ()
    nodes = (node.strip() for part in re.split(r" \+ | \|\| ", name) for node in _within_pointwise(part))
    return tuple(dict.fromkeys(node for node in nodes if node and not node.startswith(_MADE_UP)))


def _within_pointwise(part: str) -> list[str]:
    """The nodes of `PWN(PWN(/a/Sigmoid), /a/Mul)`; any other name is one node."""
    if "PWN(" not in part:
        return [part]
    return part.replace("PWN(", "").replace(")", "").split(", ")


def _is_quantizing(layer: LayerInfo, parameter: str) -> bool:
    """Whether all that a layer does is to quantize or to dequantize: a Q or DQ that no neighbour took in.

    Until version 10 such a layer is a `Scale`, told by the names of the nodes that it came from.
    """
    if parameter in ("quantize", "dequantize"):
        return True
    origin = origin_of(layer)
    is_plain = parameter in ("scale", "reformat") or "reformat" in layer.kind.lower()
    return bool(origin) and is_plain and all(_QUANTIZED.search(node) for node in origin)


def _fused_kind(layer: LayerInfo) -> OperationKind:
    """Of a kernel that Myelin generated: attention, a product with what follows it, or steps per element."""
    if _ATTENTION.search(f"{layer.name} {layer.tactic}"):
        return OperationKind.ATTENTION
    steps = _steps(layer)
    if _PRODUCT_STEPS.intersection(steps):
        return OperationKind.MATRIX_PRODUCT
    return OperationKind.POINTWISE


def _steps(layer: LayerInfo) -> list[str]:
    """The steps in the name of a generated kernel, such as Add, Cast, Mul; else a point-wise layer's operations."""
    found = _MYELIN_STEPS.search(layer.name) or _MYELIN_STEPS.search(layer.tactic)
    if found:
        return _STEP.findall(found["steps"])
    return [str(each) for each in layer.details.get("Operations", ())]


def _weights(details: Mapping[str, Any]) -> tuple[Operand, ...]:
    """Of older layers a type and a number of elements each; Myelin's are tensors."""
    flat = [details[key] for key in ("Weights", "Bias") if isinstance(details.get(key), Mapping)]
    told = [Operand((int(each["Count"]),), data_type(str(each["Type"]))) for each in flat if each["Count"]]
    constants = [each for each in details.get("Constants", ()) if isinstance(each, Mapping)]
    return (*told, *(_operand(layer_tensor(each)) for each in constants))


def _operand(tensor: LayerTensor) -> Operand:
    return Operand(tensor.dims, tensor.dtype, tensor.format)


def _dtype(kind: OperationKind, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...], tactic: str) -> str:
    """Of a matrix product the type of its first operand, as TF32 where the tactic rounds to that; else the output's."""
    if kind not in MATRIX_KINDS:
        return outputs[0].dtype if outputs else ""
    first = inputs[0].dtype if inputs else ""
    return "TF32" if first == "FP32" and "tf32" in tactic.lower() else first

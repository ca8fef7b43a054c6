"""What an ONNX file says of itself before TensorRT sees it: tensors by name, the types it computes in, its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import ModelLoadFailed
from service.runtime.trt.manifest import file_sha256
from service.tensors import Dim, DType, TensorSpec

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

# The numbers of `onnx.TensorProto.DataType`, which are part of the file format.
_DTYPES = {
    1: DType.FP32,
    2: DType.UINT8,
    3: DType.INT8,
    6: DType.INT32,
    7: DType.INT64,
    9: DType.BOOL,
    10: DType.FP16,
    16: DType.BF16,
}
_FLOATS = {10: "fp16", 16: "bf16"}
_UINT8 = 2
_QUANTIZED = {2: "int8", 3: "int8", 17: "fp8"}
_QUANTIZERS = {"QuantizeLinear", "DequantizeLinear"}
_FP8_QUANTIZERS = {"TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear"}


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node as messages name it; `domain` is empty for ONNX's own operators."""

    name: str
    op_type: str
    domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFacts:
    """One ONNX file.

    Attributes:
        inputs: in the model's order; every dynamic dimension has a name.
        outputs: likewise.
        nodes: those of the main graph, in the file's order.
        precisions: the lower precisions that the model carries itself, of `fp16`, `bf16`, `int8` and `fp8`.
        opset: the version of ONNX's own operators.
        nbytes: the file's size, weights in other files not counted.
        sha256: the file's digest, in lower-case hexadecimal.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[OnnxNode, ...]
    precisions: frozenset[str]
    opset: int
    nbytes: int
    sha256: str


def read_facts(path: Path) -> OnnxFacts:
    """Reads an ONNX file, without its weights where they lie in other files.

    Raises:
        ModelLoadFailed: the file or its weights are missing, it is no ONNX model, or a tensor has a type that TensorRT
            does not take.
    """
    model = _load(path)
    graph = model.graph
    if not graph.output:
        raise ModelLoadFailed(f"{path.name} is no ONNX model: it has no graph with outputs; export the model again")
    weights = {weight.name for weight in graph.initializer}
    graphs = tuple(_graphs(graph))
    for each in graphs:
        _require_weights(each, path)
    return OnnxFacts(
        inputs=tuple(_tensor("input", value) for value in graph.input if value.name not in weights),
        outputs=tuple(_tensor("output", value) for value in graph.output),
        nodes=tuple(OnnxNode(node.name, node.op_type, node.domain) for node in graph.node),
        precisions=frozenset(precision for each in graphs for precision in _precisions(each)),
        opset=max((opset.version for opset in model.opset_import if opset.domain in {"", "ai.onnx"}), default=0),
        nbytes=path.stat().st_size,
        sha256=file_sha256(path),
    )


def _load(path: Path) -> ModelProto:
    try:
        import onnx  # noqa: PLC0415
    except ImportError as error:
        raise ModelLoadFailed(
            f"building an engine needs the package onnx, which cannot be imported ({error}); pip install -e '.[build]'"
        ) from error
    try:
        return onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise ModelLoadFailed(f"{path.name} cannot be read: {error.strerror}; check the file and its rights") from error
    except Exception as error:  # protobuf's DecodeError, which is not onnx's to name
        raise ModelLoadFailed(
            f"{path.name} is no ONNX model, or it is cut off ({error}); copy it again, or export it again"
        ) from error


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and those inside its nodes: the branches of an If, the body of a Loop."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _require_weights(graph: GraphProto, path: Path) -> None:
    for weight in graph.initializer:
        place = {entry.key: entry.value for entry in weight.external_data}
        if "location" not in place:
            continue
        file = path.parent / place["location"]
        if not file.is_file():
            raise ModelLoadFailed(
                f"{path.name} keeps its weights in '{place['location']}', which is missing; copy that file beside it"
            )
        wanted = int(place.get("offset", 0)) + int(place.get("length", 0))
        if file.stat().st_size < wanted:
            raise ModelLoadFailed(
                f"'{place['location']}', which holds weights of {path.name}, is cut off: it has "
                f"{file.stat().st_size} bytes, at least {wanted} are needed; copy it again"
            )


def _tensor(role: str, value: ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    dtype = _DTYPES.get(tensor.elem_type)
    if dtype is None:
        raise ModelLoadFailed(
            f"{role} '{value.name}' has type {tensor.elem_type} of ONNX's types, which TensorRT does not take; "
            f"it takes {', '.join(sorted(dtype.value for dtype in _DTYPES.values()))}; cast it inside the model, or "
            "serve it with backend = 'onnxruntime'"
        )
    dims: tuple[Dim, ...] = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_{axis}"
        for axis, dim in enumerate(tensor.shape.dim)
    )
    return TensorSpec(value.name, dtype, dims)


def _precisions(graph: GraphProto) -> Iterator[str]:
    constants = {weight.name: weight.data_type for weight in graph.initializer}
    constants.update({node.output[0]: value.data_type for node in graph.node for value in _constant(node)})
    types = {*constants.values(), *(value.type.tensor_type.elem_type for value in graph.input)}
    for node in graph.node:
        types.update(attribute.i for attribute in node.attribute if node.op_type == "Cast" and attribute.name == "to")
        if node.op_type in _FP8_QUANTIZERS:
            yield "fp8"
        if node.op_type in _QUANTIZERS:
            yield from _quantized(node, constants)
    yield from (_FLOATS[number] for number in types if number in _FLOATS)


def _constant(node: NodeProto) -> Iterator[TensorProto]:
    return (attribute.t for attribute in node.attribute if node.op_type == "Constant" and attribute.name == "value")


def _quantized(node: NodeProto, constants: dict[str, int]) -> Iterator[str]:
    """What a node quantizes to: the type of its zero point, else what it is told, else UINT8."""
    if len(node.input) > 2:
        number = constants.get(node.input[2], 0)
    else:
        number = next((each.i for each in node.attribute if each.name == "output_dtype" and each.i), _UINT8)
    if number in _QUANTIZED:
        yield _QUANTIZED[number]

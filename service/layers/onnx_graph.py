"""What an ONNX model's nodes cost in one bucket's shapes, for layers whose runtime tells too little of them.

TensorRT 8.6 shows all that Myelin compiles, such as a whole transformer, as one layer named after its first and last
node: `{ForeignNode[/embeddings/Gather.../pooler/Gemm]}`. Later versions name the nodes that a fused attention came
from. In both cases the products among the nodes say the FLOPs. It needs the package `onnx`, as the builder does; where
that or the model is missing, layers stay unknown.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.layers.flops import flops
from service.runtime.layer_trace import Operand, Operation, OperationKind

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

_KINDS: Mapping[str, OperationKind] = {
    "Conv": OperationKind.CONVOLUTION,
    "ConvTranspose": OperationKind.DECONVOLUTION,
    "Gemm": OperationKind.MATRIX_PRODUCT,
    "MatMul": OperationKind.MATRIX_PRODUCT,
}
_TYPES: Mapping[int, str] = {1: "FP32", 10: "FP16", 11: "FP64", 16: "BF16"}
"""ONNX's numbers of the types that weights have."""

_GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Nodes that read some rows of a table, not all of it."""

_REGION = re.compile(r"ForeignNode\[(?P<first>.+?)\.\.\.(?P<last>.+)\]")

_JOINED = " + "

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of an ONNX model.

    Attributes:
        name: the node's.
        flops: of a convolution or a matrix product; 0 of all others, None where its shapes are not known.
        weight_count: numbers of the model's own that it reads, and no other node.
        constants: names of what it reads of the model's own.
    """

    name: str
    flops: float | None
    weight_count: int = 0
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """An ONNX model's nodes in the order of execution.

    Attributes:
        nodes: all of them.
        dtype: of its weights, such as `FP32`; empty where they have several types or none.
    """

    nodes: tuple[GraphNode, ...]
    dtype: str = ""

    def flops_of(self, names: Iterable[str]) -> float | None:
        """FLOPs of the products among the named nodes; None if a name or a shape is not known."""
        by_name = {node.name: node for node in self.nodes}
        known = [by_name[name].flops for name in names if name in by_name]
        return None if not known or len(known) < len(list(names)) else _total(known)

    def region(self, name: str, elsewhere: Collection[str], *, is_only: bool) -> tuple[GraphNode, ...]:
        """The nodes of a layer that is a part of the network.

        TensorRT names the first and the last of its own layers in it. Either may be several nodes, joined with ` + `,
        the first one also a constant, which then stands for the node that reads it, or one that TensorRT made up. Then
        the region begins where those before it ended, or with the model; its end must be known if it has neighbours.

        Args:
            name: the layer's, `{ForeignNode[first...last]}`.
            elsewhere: nodes that other layers came from, and those of the regions before: what lies between in the file
                need not lie within.
            is_only: whether no other layer is such a part.

        Returns:
            Nothing if the end is not known where it must be.
        """
        ends = _REGION.search(name)
        if ends is None:
            return ()
        first = next((place for part in ends["first"].split(_JOINED) if (place := self._place(part)) is not None), 0)
        last = next(
            (place for part in reversed(ends["last"].split(_JOINED)) if (place := self._place(part)) is not None),
            len(self.nodes) - 1 if is_only else -1,
        )
        return tuple(node for node in self.nodes[first : last + 1] if node.name not in elsewhere)

    def _place(self, name: str) -> int | None:
        """Of the node of that name, or of the first one that reads the constant of that name."""
        for index, node in enumerate(self.nodes):
            if name == node.name or name in node.constants:
                return index
        return None


def is_region(name: str) -> bool:
    """Whether a layer is a part of the network, by its name."""
    return _REGION.search(name) is not None


def region_flops(nodes: Collection[GraphNode]) -> float | None:
    """FLOPs of a region's products; None of no nodes, or where a shape is not known."""
    return _total([node.flops for node in nodes]) if nodes else None


def read_graph(model_path: Path, shapes: Mapping[str, tuple[int, ...]]) -> OnnxGraph | None:
    """Reads a model and infers its shapes from those of its inputs; seconds where it is large, blocking.

    Args:
        model_path: the ONNX file.
        shapes: concrete dims by input.

    Returns:
        None where the package `onnx` is missing or refuses the model, which is logged.
    """
    try:
        import onnx  # noqa: PLC0415 - the builder's package, which a server need not have

        model = onnx.load(str(model_path), load_external_data=False)
        for value in model.graph.input:
            _fix_dims(value, shapes.get(value.name, ()))
        return _graph(onnx.shape_inference.infer_shapes(model, data_prop=True))
    except Exception as error:  # of several libraries, none of which may cost a diagnosis
        _log.info("layers stay without their ONNX nodes' FLOPs: %s cannot be read: %s", model_path.name, error)
        return None


def _graph(model: ModelProto) -> OnnxGraph:
    graph = model.graph
    dims = _known_dims(graph)
    weights = Counter({tensor.name: math.prod(tensor.dims) for tensor in graph.initializer})
    types = {_TYPES.get(tensor.data_type, "") for tensor in graph.initializer if len(tensor.dims) > 1} - {""}
    readers = Counter(name for node in graph.node for name in set(node.input))
    nodes = tuple(
        GraphNode(
            node.name or (node.output[0] if node.output else ""),
            _node_flops(node, dims),
            0 if node.op_type in _GATHERS else sum(weights[name] for name in node.input if readers[name] == 1),
            tuple(name for name in node.input if name in weights),
        )
        for node in graph.node
    )
    return OnnxGraph(nodes, types.pop() if len(types) == 1 else "")


def _node_flops(node: NodeProto, dims: Mapping[str, tuple[int, ...]]) -> float | None:
    kind = _KINDS.get(node.op_type)
    if kind is None:
        return 0.0
    told = [dims.get(name) for name in (*node.input[:2], node.output[0])]
    left, right, out = (None if each is None else Operand(each, "") for each in told)
    if left is None or right is None or out is None:
        return None
    is_product = kind is OperationKind.MATRIX_PRODUCT
    return flops(
        Operation(
            name=node.name,
            word=node.op_type,
            kind=kind,
            inputs=(left, right) if is_product else (left,),
            weights=() if is_product else (right,),
            outputs=(out,),
        )
    )


def _known_dims(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    known = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        told = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in told):
            known[value.name] = tuple(dim.dim_value for dim in told)
    return known


def _fix_dims(value: ValueInfoProto, dims: tuple[int, ...]) -> None:
    told = value.type.tensor_type.shape.dim
    if len(told) == len(dims):
        for dim, extent in zip(told, dims, strict=True):
            dim.dim_value = extent


def _total(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total

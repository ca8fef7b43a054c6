"""Fills in, from the ONNX model that a plan was built from, what the runtime does not tell of its layers. Pure.

Of a region the bytes are the least that it must move: what it reads, what it writes and its weights once. What it
writes for itself in between may stay in caches, or may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from service.layers.flops import flops
from service.layers.onnx_graph import GraphNode, OnnxGraph, is_region, region_flops
from service.runtime.layer_trace import MATRIX_KINDS, Operand, Operation, OperationKind, TracedLayer


def completed(layers: Sequence[TracedLayer], graph: OnnxGraph, dtype: str) -> tuple[TracedLayer, ...]:
    """The layers with FLOPs of the ONNX nodes that they came from, where no rule gives them.

    Args:
        layers: as the runtime tells them.
        graph: the model, in the bucket's shapes.
        dtype: that regions compute in: what the plan was built for; empty if that is not known.
    """
    taken = {node for layer in layers for node in layer.operation.origin}
    is_only = sum(_is_unknown_region(layer.operation) for layer in layers) == 1
    found = []
    for layer in layers:
        operation = layer.operation
        if _is_unknown_region(operation):
            nodes = graph.region(operation.name, taken, is_only=is_only)
            taken.update(node.name for node in nodes)
            operation = _region(operation, nodes, dtype)
        elif operation.kind in MATRIX_KINDS and operation.origin and flops(operation) is None:
            operation = replace(operation, known_flops=graph.flops_of(operation.origin))
        found.append(replace(layer, operation=operation))
    return tuple(found)


def _is_unknown_region(operation: Operation) -> bool:
    return operation.kind is OperationKind.UNKNOWN and is_region(operation.name)


def _region(operation: Operation, nodes: tuple[GraphNode, ...], dtype: str) -> Operation:
    if not nodes:
        return operation
    weights = Operand((sum(node.weight_count for node in nodes),), dtype)
    return replace(
        operation,
        kind=OperationKind.REGION,
        dtype=dtype,
        weights=(weights,),
        origin=(nodes[0].name, nodes[-1].name),
        known_flops=region_flops(nodes),
    )

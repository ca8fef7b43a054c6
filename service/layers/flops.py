"""Floating-point operations of a layer, from its operands alone: multiplications and additions apart, so 2 per MAC.

Pure; what no rule knows gives None. With N images, K channels out, C in, G groups, a window R x S, and output P x Q:

    convolution     2 N K P Q (C / G) R S        by the window and the channels, or by the weights' number
    deconvolution   2 N C H W (K / G) R S        each input element meets a window of weights
    matrix product  2 |O| k                      k = sqrt(|A| |B| / (|O| b)), b the batch that A, B and O share
    attention       4 |Q| Sk                     two products of the queries with Sk keys, and then values
    pooling         |O| R S
    pointwise       |O| steps                    and bytes bound it

k follows from |A| = b m k, |B| = b k n and |O| = b m n; no order of the extents need be known. What is fused behind a
product is left out: a hundredth of it at most. Softmax counts 5 steps per element (maximum, difference, exponential,
sum, quotient), a normalisation 8 (two means, difference, square, root, quotient, scale, shift): of layers that bytes
bound, it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from service.runtime.layer_trace import Operand, Operation, OperationKind

SOFTMAX_STEPS = 5
NORMALISATION_STEPS = 8

_NEAR = 0.01
"""How far a computed extent may lie from a whole number: padding of one operand's layout shows so, and is refused."""


def flops(operation: Operation) -> float | None:
    """Operations per execution; None where the operands do not say enough."""
    rule = _RULES.get(operation.kind)
    if operation.kind in _FREE:
        return 0.0
    if operation.known_flops is not None:
        return operation.known_flops
    if rule is None or not operation.outputs or any(extent < 0 for extent in _extents(operation)):
        return None
    return rule(operation)


def _convolution(operation: Operation) -> float | None:
    written = _elements(operation.outputs[0])
    weights = operation.weights[0].dims if operation.weights else ()
    if len(weights) > 1:
        return 2.0 * written * math.prod(weights[1:])
    channels = _channels(operation.outputs[0])
    if weights and channels:
        return 2.0 * written * weights[0] / channels
    fed = _channels(operation.inputs[0]) if operation.inputs else None
    if not operation.kernel or fed is None:
        return None
    return 2.0 * written * fed / operation.groups * math.prod(operation.kernel)


def _deconvolution(operation: Operation) -> float | None:
    if not operation.inputs:
        return None
    read, channels = _elements(operation.inputs[0]), _channels(operation.inputs[0])
    weights = operation.weights[0].dims if operation.weights else ()
    if len(weights) > 1:
        return 2.0 * read * math.prod(weights[1:])
    if weights and channels:
        return 2.0 * read * weights[0] / channels
    made = _channels(operation.outputs[0])
    if not operation.kernel or made is None:
        return None
    return 2.0 * read * made / operation.groups * math.prod(operation.kernel)


def _matrix_product(operation: Operation) -> float | None:
    """By the first input and the weights or, without such, the second input: others, such as residuals, come behind."""
    factors = [each for each in operation.inputs if len(each.dims) > 1]
    if not factors:
        return None
    left, written = factors[0], _elements(operation.outputs[0])
    weights = next((each for each in operation.weights if len(each.dims) > 1), None)
    if weights is None and operation.weights:
        return _product(written, left, None, _elements(operation.weights[0]), batch=1)
    if weights is not None:
        return _product(written, left, weights, _elements(weights), batch=1)
    if len(factors) == 1:
        return _by_rows(operation.outputs[0], left)
    right = factors[1]
    batch = 1 if len(right.dims) == 2 else math.prod(operation.outputs[0].dims[:-2])
    return _product(written, left, right, _elements(right), batch=batch)


def _by_rows(output: Operand, left: Operand) -> float | None:
    """Where the runtime tells no weights: the output's last extent is n, its other ones m, and |A| = m k."""
    rows = math.prod(output.dims[:-1])
    if rows == 0:
        return 0.0
    if _elements(left) % rows:
        return None
    depth = _elements(left) // rows
    return 2.0 * _elements(output) * depth if depth in _runs(left.dims) else None


def _product(written: int, left: Operand, right: Operand | None, right_elements: int, *, batch: int) -> float | None:
    """None where k is not a whole number, or none that the factors have: one of them is not what it was taken for."""
    if written == 0:
        return 0.0
    depth = math.sqrt(_elements(left) * right_elements / (written * batch))
    whole = round(depth)
    is_there = whole in _runs(left.dims) and (right is None or whole in _runs(right.dims))
    return 2.0 * written * whole if is_there and abs(depth - whole) <= _NEAR * depth else None


def _runs(dims: tuple[int, ...]) -> set[int]:
    """Extents that reshaping may have cut: products of neighbouring ones."""
    return {math.prod(dims[first:last]) for first in range(len(dims)) for last in range(first + 1, len(dims) + 1)}


def _attention(operation: Operation) -> float | None:
    """Of queries, keys and values apart, dims [..., S, D], all of as many heads; the output is as the queries."""
    if len(operation.inputs) < 3:
        return None
    queries, keys, values = operation.inputs[:3]
    is_plain = (
        len(queries.dims) >= 3
        and queries.dims[:-2] == keys.dims[:-2]
        and keys.dims == values.dims
        and queries.dims[-1] == keys.dims[-1]
        and _elements(operation.outputs[0]) == _elements(queries)
    )
    return 4.0 * _elements(queries) * keys.dims[-2] if is_plain else None


def _pooling(operation: Operation) -> float | None:
    if operation.kernel:
        return float(_elements(operation.outputs[0]) * math.prod(operation.kernel))
    return float(sum(map(_elements, operation.inputs[:1]))) or None


def _pointwise(operation: Operation) -> float | None:
    return float(_elements(operation.outputs[0]) * operation.steps)


def _reduction(operation: Operation) -> float | None:
    return float(_elements(operation.inputs[0]) * operation.steps) if operation.inputs else None


def _softmax(operation: Operation) -> float | None:
    return float(_elements(operation.outputs[0]) * SOFTMAX_STEPS)


def _normalisation(operation: Operation) -> float | None:
    return float(_elements(operation.outputs[0]) * NORMALISATION_STEPS)


_FREE = frozenset({OperationKind.NOTHING, OperationKind.COPY, OperationKind.GATHER, OperationKind.REFORMAT})

_RULES: Mapping[OperationKind, Callable[[Operation], float | None]] = {
    OperationKind.CONVOLUTION: _convolution,
    OperationKind.DECONVOLUTION: _deconvolution,
    OperationKind.MATRIX_PRODUCT: _matrix_product,
    OperationKind.ATTENTION: _attention,
    OperationKind.POOLING: _pooling,
    OperationKind.POINTWISE: _pointwise,
    OperationKind.QUANTIZE: _pointwise,
    OperationKind.REDUCTION: _reduction,
    OperationKind.SOFTMAX: _softmax,
    OperationKind.NORMALISATION: _normalisation,
}


def _elements(operand: Operand) -> int:
    return math.prod(operand.dims)


def _channels(operand: Operand) -> int | None:
    return operand.dims[1] if len(operand.dims) > 1 else None


def _extents(operation: Operation) -> list[int]:
    return [extent for operand in (*operation.inputs, *operation.outputs) for extent in operand.dims]

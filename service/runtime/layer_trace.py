"""What a runtime tells of the layers that it ran: each one's time, and what it is, in words that all runtimes share.

Promises: what the runtime does not say is empty here, never guessed. What follows from it stands in `service.layers`.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum


class OperationKind(Enum):
    """What a layer computes, as far as its cost follows from it."""

    CONVOLUTION = "convolution"
    DECONVOLUTION = "deconvolution"
    MATRIX_PRODUCT = "matrix product"
    ATTENTION = "attention"
    POOLING = "pooling"
    POINTWISE = "pointwise"
    SOFTMAX = "softmax"
    NORMALISATION = "normalisation"
    REDUCTION = "reduction"
    COPY = "copy"
    GATHER = "gather"
    REFORMAT = "reformat"
    QUANTIZE = "quantize"
    REGION = "region"
    """A part of the network that the runtime compiled as one."""
    NOTHING = "nothing"
    UNKNOWN = "unknown"


MATRIX_KINDS = frozenset(
    {
        OperationKind.CONVOLUTION,
        OperationKind.DECONVOLUTION,
        OperationKind.MATRIX_PRODUCT,
        OperationKind.ATTENTION,
    }
)
"""What tensor cores can run. A region is none: nobody tells which of its parts they run."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a layer reads or writes.

    Attributes:
        dims: extents; empty for a scalar, one below 0 is not known.
        dtype: such as `FP16`; empty where the runtime does not say it.
        format: how it lies in memory, in the runtime's words; empty for rows one after another.
    """

    dims: tuple[int, ...]
    dtype: str
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one layer is.

    Attributes:
        name: the runtime's.
        word: the runtime's word for its kind.
        kind: what it computes.
        inputs: that it reads, weights not among them.
        outputs: that it writes.
        weights: what it reads of the model's own; of a convolution and a matrix product the operand comes first. A
            flat one, of which only the number of elements is told, has one extent.
        kernel: extents of the window of a convolution or a pooling; empty if not told.
        groups: of a convolution.
        steps: arithmetic steps per element that a fused layer is made of, at least 1.
        dtype: that it computes in, such as `FP16`; empty if not known.
        tactic: the kernel's name, or the runtime's number for it; empty if it has neither.
        origin: names of the ONNX nodes that it came from; of a region the first and the last.
        known_flops: per execution, of the products among those nodes, where the operands alone do not say it.
    """

    name: str
    word: str
    kind: OperationKind
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    weights: tuple[Operand, ...] = ()
    kernel: tuple[int, ...] = ()
    groups: int = 1
    steps: int = 1
    dtype: str = ""
    tactic: str = ""
    origin: tuple[str, ...] = ()
    known_flops: float | None = None


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """A layer and how long each execution of it took, in seconds, in the order of the runs."""

    operation: Operation
    times_s: tuple[float, ...]

    @property
    def time_s(self) -> float:
        """The median of the runs."""
        return statistics.median(self.times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTrace:
    """The layers of one bucket.

    Attributes:
        span_s: seconds that one execution takes without the profiler, measured between the runs with it.
        layers: in the order of execution.
        runs: executions with the profiler.
        is_replayed: whether a CUDA Graph ran them, as it does when serving.
        are_overlapping: whether layers may run side by side, so that their times may exceed the span.
    """

    span_s: float
    layers: tuple[TracedLayer, ...]
    runs: int
    is_replayed: bool = False
    are_overlapping: bool = False

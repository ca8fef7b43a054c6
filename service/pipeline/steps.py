"""A task's work as steps: rows for models, then what their outputs call for, until there is an answer.

A task computes and never waits: it says which rows which model shall run and is given the outputs. Whoever drives it
(`service/api/predict.py`) decides on which thread its code runs and how the rows reach their models, so tasks know
neither queues nor event loops, and a task of several models is as simple as one of a single model.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from service.buckets import DimSizes, Form
from service.tensors import HostArray

Outputs: TypeAlias = tuple[HostArray, ...]
"""The outputs that a call wants, in ascending order of their index; each array has the call's rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Rows that one model shall run in one batch: what becomes one request to it.

    Attributes:
        inputs: host_ arrays in the order of `ModelSpec.inputs`, each of `rows` rows, C-contiguous, read-only.
        rows: leading extent of every input, at most the model's `max_batch_size`.
        dims: sizes of the model's dynamic dimensions, in the order of `BucketTable.dim_names`, each within its buckets.
        outputs: indices into `ModelSpec.outputs`, ascending; None for all.
        member: which model of a composed one runs it, as the card's section calls it; empty for the task's own model.
        form: what `inputs` and `outputs` mean: tensors of `ModelSpec`, or of its `media`.
    """

    inputs: tuple[HostArray, ...]
    rows: int
    dims: DimSizes = ()
    outputs: tuple[int, ...] | None = None
    member: str = ""
    form: Form = Form.TENSORS

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs."""
        return sum(host_input.nbytes for host_input in self.inputs)


@dataclass(frozen=True, slots=True)
class Step:
    """What a task waits for.

    Attributes:
        calls: run at the same time, as far as the queues take them, each in whatever batch suits it; their outputs come
            back in this order.
        is_rest_quick: whether what the task does with the outputs takes microseconds; it then runs on the event loop,
            where it does not wait for a thread.
    """

    calls: tuple[Call, ...]
    is_rest_quick: bool = False


Steps: TypeAlias = Generator[Step, tuple[Outputs, ...], object]
"""Yields steps, is sent their outputs, and returns the answer: an object that orjson can write, NumPy arrays included.

It raises InvalidInput, PayloadTooLarge or UnsupportedMediaType for what the client sent, and ExecutionFailed where
outputs make no sense. Up to the first step it reads and decodes, which takes milliseconds.
"""

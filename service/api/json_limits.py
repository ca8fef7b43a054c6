"""How large the JSON of a request may be: bounded by what its model can take, before it is parsed.

A JSON parser builds an object for every pair of brackets, at a hundred times the bytes, and holds the interpreter
while it does: a body of the size that binary tensors need could stop the server for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.errors import PayloadTooLarge
from service.models import ModelSpec
from service.tensors import BATCH_DIM, DType, element_count

BYTES_PER_ELEMENT = 40
"""The longest float64 and a separator, with room for white space."""

HEADER_BYTES = 64 << 10
HEADER_CONTAINERS = 1000
"""Bytes and brackets for all that is not data: names, shapes, parameters."""

EXACT_DIM_SIZE = 4096
"""What a dimension without buckets counts as; larger ones can be sent as binary."""

TEXT_CONTAINERS = 1_000_000
"""Brackets allowed where data is text, which may contain any number of them."""


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Bounds on the JSON part of one model's requests.

    Attributes:
        model: the model's name, for the message.
        max_bytes: length of the JSON; None where BYTES make any length possible.
        max_containers: arrays and objects in it, counted as opening brackets.
    """

    model: str
    max_bytes: int | None
    max_containers: int

    @classmethod
    def of(cls, spec: ModelSpec) -> JsonLimits:
        """The limits that every request within the model's largest shapes keeps, flat or nested."""
        sizes = {BATCH_DIM: spec.buckets.max_size}
        for name, padded_sizes in zip(spec.buckets.dim_names, spec.buckets.dim_sizes, strict=True):
            sizes[name] = padded_sizes[-1] if padded_sizes else EXACT_DIM_SIZE
        shapes = [tensor.resolve(sizes) for tensor in spec.inputs]
        if any(tensor.dtype is DType.BYTES for tensor in spec.inputs):
            return cls(spec.name, None, TEXT_CONTAINERS)
        elements = sum(element_count(shape) for shape in shapes)
        nested = sum(element_count(shape[:axis]) for shape in shapes for axis in range(len(shape)))
        return cls(spec.name, elements * BYTES_PER_ELEMENT + HEADER_BYTES, nested + HEADER_CONTAINERS)

    def check(self, json_part: bytes | memoryview) -> None:
        """Refuses what no valid request can be.

        Raises:
            PayloadTooLarge: the JSON is longer, or has more brackets, than the model's largest request.
        """
        if self.max_bytes is not None and len(json_part) > self.max_bytes:
            raise PayloadTooLarge(
                f"the request's JSON has {len(json_part)} bytes, the largest request of model '{self.model}' needs "
                f"{self.max_bytes} at most; send fewer rows, or binary data (Inference-Header-Content-Length)"
            )
        if len(json_part) <= self.max_containers:
            return
        text = bytes(json_part)
        containers = text.count(b"[") + text.count(b"{")
        if containers > self.max_containers:
            raise PayloadTooLarge(
                f"the request's JSON has {containers} brackets, the largest request of model '{self.model}' needs "
                f"{self.max_containers} at most; nest 'data' as its shape says, or send it flat"
            )

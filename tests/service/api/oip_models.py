"""Models and requests for the tests of the protocol's codecs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from service.cards import BatchingCard, ModelCard, ShapeRange
from service.models import ModelSpec, build_spec
from service.tensors import Dim, DType, TensorSpec

Tensors = Mapping[str, tuple[str, tuple[Dim, ...]]]

ONE_TENSOR: Tensors = MappingProxyType({"x": ("FP32", ("batch", 3))})


def make_spec(
    inputs: Tensors = ONE_TENSOR,
    outputs: Tensors = MappingProxyType({"y": ("FP32", ("batch", 3))}),
    *,
    max_batch_size: int = 8,
    bucket_sizes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    profiles: tuple[Mapping[str, ShapeRange], ...] = (),
    labels: tuple[str, ...] = (),
) -> ModelSpec:
    """The model `m`; `max_batch_size` 0 makes it one without a batch dimension."""
    card = ModelCard(
        name="m",
        labels=labels,
        bucket_sizes=bucket_sizes,
        profiles=profiles,
        batching=BatchingCard(max_batch_size=max_batch_size, priority_levels=3),
    )
    return build_spec(
        card,
        version="1",
        platform="onnxruntime_onnx",
        inputs=tuple(TensorSpec(name, DType(datatype), dims) for name, (datatype, dims) in inputs.items()),
        outputs=tuple(TensorSpec(name, DType(datatype), dims) for name, (datatype, dims) in outputs.items()),
    )


def tensor_json(name: str, datatype: str, shape: Sequence[Any], **more: Any) -> dict[str, Any]:
    """One input as a client writes it; `size` stands for the parameter `binary_data_size`."""
    if "size" in more:
        more["parameters"] = {"binary_data_size": more.pop("size")}
    return {"name": name, "datatype": datatype, "shape": list(shape), **more}


def x_json(rows: int = 1, **more: Any) -> dict[str, Any]:
    """The input of `ONE_TENSOR` with data of its own."""
    return tensor_json("x", "FP32", [rows, 3], data=[0.5] * (3 * rows), **more)


def body(document: Any) -> bytes:
    """`document` as JSON."""
    return json.dumps(document).encode()


def binary_body(document: Any, *parts: bytes) -> tuple[bytes, int]:
    """`document` as JSON with parts behind it, and the length of the JSON."""
    header = body(document)
    return b"".join((header, *parts)), len(header)


def wire_elements(*elements: bytes) -> bytes:
    """BYTES elements in the binary layout, written the long way."""
    return b"".join(np.uint32(len(element)).astype("<u4").tobytes() + element for element in elements)

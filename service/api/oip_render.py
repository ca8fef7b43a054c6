"""An inference response on the wire: JSON, and behind it the binary outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from service.api.classification import classify
from service.api.oip_binary import binary_from_array
from service.api.oip_json import json_from_array
from service.api.oip_outputs import check_fits
from service.api.oip_parse import ParsedInfer
from service.api.oip_places import BYTE_SIZE, OFFSET, REGION, Place
from service.models import ModelSpec
from service.tensors import DType, HostArray, TensorSpec

_JSON = b"application/json"
_OCTET_STREAM = b"application/octet-stream"


class SharedPart(NamedTuple):
    """An output that goes into shared memory.

    Attributes:
        place: where it goes; it fits.
        data: its bytes on the wire.
    """

    place: Place
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class RenderedInfer:
    """A response body.

    Attributes:
        chunks: the body, to be sent one after another; views stay valid as long as the output arrays do.
        content_type: value of Content-Type.
        header_length: value of Inference-Header-Content-Length in bytes (before compression), or None where the
            response must not carry it, because nothing follows the JSON.
        shared: what must be written before the body is sent.
    """

    chunks: tuple[bytes | memoryview, ...]
    content_type: bytes
    header_length: int | None
    shared: tuple[SharedPart, ...] = ()


def render_infer(spec: ModelSpec, parsed: ParsedInfer, arrays: Sequence[HostArray]) -> RenderedInfer:
    """Encodes the outputs of one request, in the model's order; JSON data is always flat.

    Args:
        spec: the model.
        parsed: the request.
        arrays: one per entry of `parsed.outputs`, [rows, ...], C-contiguous, of the output's type, padding removed.

    Raises:
        InvalidInput: an output was requested as JSON but holds values that JSON cannot express, or is larger than its
            place in shared memory.
    """
    outputs: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = []
    shared: list[SharedPart] = []
    for requested, output in zip(parsed.outputs, arrays, strict=True):
        tensor, array = spec.outputs[requested.index], output
        if requested.classification:
            array = classify(
                output,
                tensor.dtype,
                requested.classification,
                spec.card.labels,
                has_batch_dim=spec.has_batch_dim,
            )
            tensor = TensorSpec(tensor.name, DType.BYTES, tensor.dims)
        # Clients take `parameters` of an output as the sign of a binary part: they must not stand on one in JSON.
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.dtype.value, "shape": array.shape}
        if requested.place is not None:
            part = binary_from_array(array, tensor.dtype)
            check_fits(tensor.name, requested.place, len(part))
            shared.append(SharedPart(requested.place, part))
            entry["parameters"] = _place_json(requested.place, len(part))
        elif requested.binary:
            part = binary_from_array(array, tensor.dtype)
            entry["parameters"] = {"binary_data_size": len(part)}
            if part:
                parts.append(part)
        else:
            entry["data"] = json_from_array(array, tensor)
        outputs.append(entry)
    response: dict[str, Any] = {"id": parsed.request_id} if parsed.request_id else {}
    response.update(model_name=spec.name, model_version=spec.version, outputs=outputs)
    header = orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)
    if not parts:
        return RenderedInfer((header,), _JSON, None, tuple(shared))
    return RenderedInfer((header, *parts), _OCTET_STREAM, len(header), tuple(shared))


def _place_json(place: Place, nbytes: int) -> dict[str, Any]:
    """Where an output lies; clients in C++ take an output that has parameters, and no size of a part, as malformed."""
    return {"binary_data_size": 0, REGION: place.region, OFFSET: place.offset, BYTE_SIZE: nbytes}

"""What the experiments need of the routes: a request on the wire, and the codecs that read it and write its answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import numpy as np
import orjson

from service.api.oip_binary import binary_from_array
from service.api.oip_codec import InferCodec
from service.api.oip_json import json_from_array
from service.models import ModelSpec
from service.requests import InferenceRequest
from service.runtime.synthetic import SEED, synthetic_values
from service.tensors import HostArray


class SyntheticCodec:
    """One request of a model in both forms, and an answer to it. Implements `probes.bench.CodecTrial`.

    Args:
        spec: the model.
        request: what is sent.
        outputs: what is answered.
    """

    def __init__(self, spec: ModelSpec, request: InferenceRequest, outputs: tuple[HostArray, ...]) -> None:
        self._codec = InferCodec(spec)
        self._outputs = outputs
        self._bodies = {is_binary: request_body(spec, request, is_binary=is_binary) for is_binary in (False, True)}

    @classmethod
    def of(cls, spec: ModelSpec, request: InferenceRequest) -> SyntheticCodec | None:
        """With synthetic outputs; None where the sizes of some are known only once the model has run."""
        sizes = spec.dim_sizes(request.dims, request.rows)
        rng = np.random.default_rng(SEED)
        try:
            shapes = [tensor.resolve(sizes) for tensor in spec.outputs]
        except KeyError:
            return None
        values = (synthetic_values(rng, each.dtype, shape) for each, shape in zip(spec.outputs, shapes, strict=True))
        return cls(spec, request, tuple(values))

    def run(self, *, is_binary: bool) -> None:
        """Parses the request and renders the answer, once."""
        body, header_length = self._bodies[is_binary]
        self._codec.render(self._codec.parse(body, header_length), self._outputs)


def request_body(spec: ModelSpec, request: InferenceRequest, *, is_binary: bool) -> tuple[bytes, int | None]:
    """A request as clients of the protocol send it, and the length of its JSON header, None where all of it is JSON."""
    inputs: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = []
    for tensor, values in zip(spec.inputs, request.inputs, strict=True):
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.dtype.value, "shape": list(values.shape)}
        if is_binary:
            part = binary_from_array(np.ascontiguousarray(values), tensor.dtype)
            entry["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
        else:
            entry["data"] = json_from_array(values, tensor)
        inputs.append(entry)
    document: dict[str, Any] = {
        "parameters": {"binary_data_output": is_binary, "priority": request.priority},
        "inputs": inputs,
    }
    header = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join((header, *parts)), len(header) if is_binary else None


def http_request(spec: ModelSpec, request: InferenceRequest, *, host: str, api_key: str | None) -> bytes:
    """Head and body of an inference request with binary tensors, for HTTP/1.1 and a connection that stays open."""
    body, header_length = request_body(spec, request, is_binary=True)
    lines = [
        f"POST /v2/models/{quote(spec.name, safe='')}/versions/{spec.version}/infer HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/octet-stream",
        f"Inference-Header-Content-Length: {header_length}",
        f"Content-Length: {len(body)}",
        *([f"Authorization: Bearer {api_key}"] if api_key else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

from typing import Any

import numpy as np
import orjson
import pytest

from service.api.oip_outputs import RequestedOutput
from service.api.oip_parse import ParsedInfer
from service.api.oip_render import render_infer
from service.errors import InvalidInput
from service.models import ModelSpec
from service.tensors import HostArray
from tests.service.api.oip_models import make_spec, wire_elements

SPEC = make_spec(
    outputs={
        "y": ("FP32", ("batch", 2)),
        "z": ("INT64", ("batch",)),
        "text": ("BYTES", ("batch", 1)),
        "found": ("FP32", ("k", 6)),
    },
    max_batch_size=0,
    labels=("cat", "dog"),
)
Y = np.array([[0.25, -1.5]], dtype=np.float32)
Z = np.array([1 << 60], dtype=np.int64)
TEXT = np.array([["größe".encode()]], dtype=object)
NOTHING_FOUND = np.empty((0, 6), dtype=np.float32)


def request(*outputs: tuple[int, bool, int], request_id: str = "") -> ParsedInfer:
    return ParsedInfer(
        inputs=(), rows=1, dims=(), outputs=tuple(RequestedOutput(*o) for o in outputs), request_id=request_id, nbytes=0
    )


def outputs_json(*outputs: dict[str, Any], **more: str) -> dict[str, Any]:
    return {**more, "model_name": "m", "model_version": "1", "outputs": list(outputs)}


def test_json_outputs_are_flat_and_have_no_parameters() -> None:
    rendered = render_infer(SPEC, request((0, False, 0), (1, False, 0), (2, False, 0), request_id="rq-7"), [Y, Z, TEXT])
    (header,) = rendered.chunks
    assert orjson.loads(header) == outputs_json(
        {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.25, -1.5]},
        {"name": "z", "datatype": "INT64", "shape": [1], "data": [1 << 60]},
        {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["größe"]},
        id="rq-7",
    )
    assert (rendered.content_type, rendered.header_length) == (b"application/json", None)


def test_binary_outputs_follow_the_json_in_the_models_order() -> None:
    rendered = render_infer(SPEC, request((0, True, 0), (1, False, 0), (2, True, 0)), [Y, Z, TEXT])
    text = wire_elements("größe".encode())
    body = b"".join(rendered.chunks)
    assert rendered.content_type == b"application/octet-stream"
    assert rendered.header_length is not None
    assert orjson.loads(body[: rendered.header_length]) == outputs_json(
        {"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}},
        {"name": "z", "datatype": "INT64", "shape": [1], "data": [1 << 60]},
        {"name": "text", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(text)}},
    )
    assert body[rendered.header_length :] == Y.tobytes() + text


def test_arrays_are_sent_without_a_copy() -> None:
    rendered = render_infer(SPEC, request((0, True, 0)), [Y])
    assert np.shares_memory(np.frombuffer(rendered.chunks[1], dtype=np.float32), Y)


@pytest.mark.parametrize(
    ("arrays", "requested", "sizes", "header_sent"),
    [
        ([NOTHING_FOUND], [(3, True, 0)], [0], False),
        ([Y, NOTHING_FOUND], [(0, True, 0), (3, True, 0)], [8, 0], True),
    ],
)
def test_header_length_is_sent_only_with_a_part_that_has_bytes(
    arrays: list[HostArray], requested: list[tuple[int, bool, int]], sizes: list[int], header_sent: bool
) -> None:
    rendered = render_infer(SPEC, request(*requested), arrays)
    document = orjson.loads(rendered.chunks[0])
    assert [output["parameters"]["binary_data_size"] for output in document["outputs"]] == sizes
    assert rendered.header_length == (len(rendered.chunks[0]) if header_sent else None)
    assert rendered.content_type == (b"application/octet-stream" if header_sent else b"application/json")
    assert len(rendered.chunks) == 1 + sum(size > 0 for size in sizes)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [(SPEC, [2]), (make_spec(outputs={"y": ("FP32", ("batch", 2))}, labels=("cat", "dog")), [1, 2])],
)
def test_classification_replaces_the_tensor(spec: ModelSpec, shape: list[int]) -> None:
    as_json = render_infer(spec, request((0, False, 5)), [Y])
    assert orjson.loads(as_json.chunks[0])["outputs"] == [
        {"name": "y", "datatype": "BYTES", "shape": shape, "data": ["0.250000:0:cat", "-1.500000:1:dog"]}
    ]
    as_binary = render_infer(spec, request((0, True, 1)), [Y])
    assert bytes(as_binary.chunks[1]) == wire_elements(b"0.250000:0:cat")


def test_nan_as_json_is_the_clients_to_mend() -> None:
    with pytest.raises(InvalidInput, match='request it with "binary_data": true'):
        render_infer(SPEC, request((0, False, 0)), [np.full((1, 2), np.nan, dtype=np.float32)])
    rendered = render_infer(SPEC, request((0, True, 0)), [np.full((1, 2), np.nan, dtype=np.float32)])
    assert rendered.header_length is not None

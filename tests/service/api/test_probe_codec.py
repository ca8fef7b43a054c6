"""A request on the wire as experiments send it: the routes' own codec reads back what went in."""

from __future__ import annotations

import numpy as np
import pytest

from service.api.oip_codec import InferCodec
from service.api.probe_codec import SyntheticCodec, http_request, request_body
from service.cards import ModelCard
from service.models import build_spec
from service.runtime.synthetic import synthetic_request
from service.tensors import DType, TensorSpec

NUMBERS = tuple(dtype for dtype in DType if dtype is not DType.BYTES)
SPEC = build_spec(
    ModelCard(name="every one"),
    version="3",
    platform="test",
    inputs=tuple(TensorSpec(dtype.value, dtype, ("n", 4)) for dtype in DType),
    outputs=tuple(TensorSpec(f"out {dtype.value}", dtype, ("n", 2)) for dtype in DType),
)


@pytest.mark.parametrize("is_binary", [False, True])
def test_what_is_sent_is_what_is_read(is_binary: bool) -> None:
    request = synthetic_request(SPEC, (), rows=3)
    body, header_length = request_body(SPEC, request, is_binary=is_binary)
    parsed = InferCodec(SPEC).parse(body, header_length)
    assert (header_length is None) is not is_binary
    assert parsed.rows == 3
    assert parsed.priority == request.priority
    assert {output.binary for output in parsed.outputs} == {is_binary}
    for sent, got in zip(request.inputs, parsed.inputs, strict=True):
        np.testing.assert_array_equal(sent, got)


@pytest.mark.parametrize("is_binary", [False, True])
def test_both_forms_are_parsed_and_rendered(is_binary: bool) -> None:
    trial = SyntheticCodec.of(SPEC, synthetic_request(SPEC, (), rows=2))
    assert trial is not None
    trial.run(is_binary=is_binary)


def test_outputs_of_unknown_size_cannot_be_rendered() -> None:
    spec = build_spec(
        ModelCard(name="m"),
        version="1",
        platform="test",
        inputs=(TensorSpec("x", DType.FP32, ("n", 4)),),
        outputs=(TensorSpec("found", DType.FP32, ("n", "selected")),),
    )
    assert SyntheticCodec.of(spec, synthetic_request(spec, (), rows=1)) is None


def test_the_head_of_a_request() -> None:
    request = synthetic_request(SPEC, (), rows=1)
    sent = http_request(SPEC, request, host="::1", api_key="secret")
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v2/models/every%20one/versions/3/infer HTTP/1.1"
    assert b"Authorization: Bearer secret" in lines
    assert f"Content-Length: {len(body)}".encode() in lines
    assert b"Authorization" not in http_request(SPEC, request, host="::1", api_key=None)

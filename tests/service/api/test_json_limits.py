"""The JSON of a request is bounded by its model, before a parser sees it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.json_limits import JsonLimits
from service.api.oip_parse import InferParser
from service.errors import InvalidInput, PayloadTooLarge
from tests.service.api.oip_models import make_spec

SPEC = make_spec(
    {"x": ("FP64", ("batch", "width", 3))}, {"y": ("FP64", ("batch", "width", 3))}, bucket_sizes={"width": (4, 64)}
)


@given(
    rows=st.integers(1, 8),
    width=st.integers(1, 64),
    value=st.sampled_from([0.1234567890123456, -1.7976931348623157e308, -2.2250738585072014e-308]),
    is_flat=st.booleans(),
)
def test_every_request_that_the_model_can_take_keeps_the_limits(rows, width, value, is_flat):
    array = np.full((rows, width, 3), value)
    data = array.ravel().tolist() if is_flat else array.tolist()
    tensor = {"name": "x", "shape": list(array.shape), "datatype": "FP64", "data": data}
    body = json.dumps({"id": "an id", "inputs": [tensor], "outputs": [{"name": "y"}]}, indent=1 if is_flat else None)
    np.testing.assert_array_equal(InferParser(SPEC).parse(body.encode(), None).inputs[0], array)


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[' + b"[]," * 100_000 + b"[]]}",
        b'{"inputs":[' + b"{}," * 100_000 + b"{}]}",
        b'{"inputs":[' + b"1," * 500_000 + b"1]}",
        b" " * 10_000_000,
    ],
    ids=["arrays", "objects", "numbers", "space"],
)
def test_what_no_request_can_be_is_refused_unparsed(body, monkeypatch):
    monkeypatch.setattr("service.api.oip_parse.load_header", lambda _: pytest.fail("parsed"))
    with pytest.raises(PayloadTooLarge, match="the largest request of model 'm' needs"):
        InferParser(SPEC).parse(body, None)


def test_a_header_before_binary_data_is_bounded_as_well():
    header = b'{"inputs":[' + b"[]," * 100_000 + b"[]]}"
    with pytest.raises(PayloadTooLarge):
        InferParser(SPEC).parse(header + bytes(24), len(header))


def test_text_may_be_long_and_hold_brackets():
    spec = make_spec({"x": ("BYTES", ("batch", 1))}, {"y": ("BYTES", ("batch", 1))})
    text = "[{" * 200_000
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}).encode()
    assert InferParser(spec).parse(body, None).inputs[0][0, 0] == text.encode()
    with pytest.raises((PayloadTooLarge, InvalidInput)):
        InferParser(spec).parse(b'{"inputs":[' + b"[]," * 1_000_001 + b"[]]}", None)


def test_a_dimension_without_buckets_has_a_bound_too():
    limits = JsonLimits.of(make_spec({"x": ("FP32", ("batch", "width"))}, {"y": ("FP32", ("batch", "width"))}))
    assert limits.max_bytes is not None
    assert 0 < limits.max_bytes < 16 << 20

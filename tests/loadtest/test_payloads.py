from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from loadtest import payloads
from loadtest.errors import LoadTestError
from loadtest.metadata import ITEM_BYTES, ModelMetadata, TensorMetadata
from loadtest.payloads import (
    SAMPLES_PER_SHAPE,
    Payload,
    PayloadPlan,
    Wire,
    build_payloads,
    dim_names,
    parse_dims,
    parse_sizes,
)


def model(*inputs: tuple[str, str, tuple[int, ...]]) -> ModelMetadata:
    return ModelMetadata("m", tuple(TensorMetadata(*entry) for entry in inputs), ())


IMAGE = model(("image", "UINT8", (-1, 3, 48, -1)))
TOKENS = model(("ids", "INT64", (-1, -1)), ("mask", "INT64", (-1, -1)))


def header_of(payload: Payload) -> tuple[dict[str, list[dict[str, object]]], bytes]:
    length = int(dict(payload.headers).get("Inference-Header-Content-Length", len(payload.body)))
    return json.loads(payload.body[:length]), payload.body[length:]


def shapes_of(made: Sequence[Payload]) -> list[list[list[int]]]:
    return [[entry["shape"] for entry in header_of(payload)[0]["inputs"]] for payload in made[::SAMPLES_PER_SHAPE]]  # type: ignore[misc]


def test_mixes_rows_and_dims() -> None:
    made = build_payloads(IMAGE, PayloadPlan(rows=(1, 2), dims={"width": (160, 320)}))
    assert shapes_of(made) == [[[rows, 3, 48, width]] for rows in (1, 2) for width in (160, 320)]
    assert [payload.label for payload in made[::SAMPLES_PER_SHAPE]][1] == "rows=1 width=320"
    assert {payload.path for payload in made} == {"/v2/models/m/infer"}
    assert made[-1].rows == 2


def test_a_dim_is_shared_by_inputs() -> None:
    assert shapes_of(build_payloads(TOKENS, PayloadPlan(dims={"sequence": (7,)}))) == [[[1, 7], [1, 7]]]


def test_one_dim_of_one_input_can_be_named() -> None:
    made = build_payloads(TOKENS, PayloadPlan(dims={"sequence": (7,), "mask:1": (9,)}))
    assert shapes_of(made) == [[[1, 7], [1, 9]]]


@pytest.mark.parametrize("names", [(), ("width", "height"), ("image:1",), ("image:3", "width")])
def test_names_and_dynamic_dimensions_must_agree(names: tuple[str, ...]) -> None:
    with pytest.raises(LoadTestError, match=r"\['image:3'\]"):
        dim_names(IMAGE, names)


def test_a_fixed_leading_dimension_takes_no_rows() -> None:
    fixed = model(("x", "FP32", (4, -1)))
    assert shapes_of(build_payloads(fixed, PayloadPlan(dims={"n": (5,)}))) == [[[4, 5]]]
    with pytest.raises(LoadTestError, match="leave --rows at 1"):
        build_payloads(fixed, PayloadPlan(rows=(2,), dims={"n": (5,)}))


@pytest.mark.parametrize("datatype", ITEM_BYTES)
def test_binary_bodies_hold_what_their_header_says(datatype: str) -> None:
    made = build_payloads(model(("x", datatype, (-1, 5)), ("z", "UINT8", (-1, 2))), PayloadPlan(rows=(3,), dims={}))
    for payload in made:
        header, raw = header_of(payload)
        sizes = [entry["parameters"]["binary_data_size"] for entry in header["inputs"]]  # type: ignore[index]
        assert sum(sizes) == len(raw)
        assert sizes[1] == 6
        item_bytes = ITEM_BYTES[datatype] or 12  # BYTES: a length of 4 bytes and 8 characters
        assert sizes[0] == 15 * item_bytes
        assert header["parameters"] == {"binary_data_output": True}


def test_bytes_are_length_prefixed() -> None:
    _, raw = header_of(build_payloads(model(("x", "BYTES", (-1,))), PayloadPlan(dims={}))[0])
    assert raw[:4] == (8).to_bytes(4, "little")
    assert raw[4:].decode().isalnum()


@pytest.mark.parametrize(
    ("datatype", "numpy_type"),
    [
        ("FP32", "<f4"),
        ("FP64", "<f8"),
        ("FP16", "<f2"),
        ("UINT8", "u1"),
        ("INT8", "i1"),
        ("INT64", "<i8"),
        ("BOOL", "?"),
    ],
)
def test_json_and_binary_carry_the_same_values(datatype: str, numpy_type: str) -> None:
    metadata = model(("x", datatype, (-1, 7)))
    binary = build_payloads(metadata, PayloadPlan(dims={}, rows=(2,), seed=5))
    text = build_payloads(metadata, PayloadPlan(dims={}, rows=(2,), seed=5, wire=Wire.JSON))
    for one, other in zip(binary, text, strict=True):
        values = np.frombuffer(header_of(one)[1], numpy_type)
        document, raw = header_of(other)
        assert raw == b""
        assert np.array_equal(np.array(document["inputs"][0]["data"], numpy_type), values)


def test_bf16_is_the_upper_half_of_fp32() -> None:
    metadata = model(("x", "BF16", (-1, 4)))
    bits = np.frombuffer(header_of(build_payloads(metadata, PayloadPlan(dims={}))[0])[1], "<u2")
    values = header_of(build_payloads(metadata, PayloadPlan(dims={}, wire=Wire.JSON))[0])[0]["inputs"][0]["data"]
    assert np.array_equal((bits.astype(np.uint32) << 16).view(np.float32), np.array(values, np.float32))
    assert all(0 <= value < 1 for value in values)  # type: ignore[union-attr, attr-defined]


def test_masks_are_never_empty_and_ids_always_valid() -> None:
    for payload in build_payloads(TOKENS, PayloadPlan(rows=(8,), dims={"sequence": (2,)})):
        values = np.frombuffer(header_of(payload)[1], "<i8").reshape(2, 8, 2)
        assert set(np.unique(values)) <= {0, 1}
        assert values.any(axis=2).all()


def test_bodies_repeat_by_seed_and_differ_within_one() -> None:
    plan = PayloadPlan(dims={"width": (32,)}, seed=0)
    bodies = [payload.body for payload in build_payloads(IMAGE, plan)]
    assert bodies == [payload.body for payload in build_payloads(IMAGE, plan)]
    assert len(set(bodies)) == SAMPLES_PER_SHAPE
    assert bodies != [payload.body for payload in build_payloads(IMAGE, PayloadPlan(dims={"width": (32,)}, seed=1))]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_PAYLOAD_BYTES", 10_000)
    with pytest.raises(LoadTestError, match="smaller sizes"):
        build_payloads(IMAGE, PayloadPlan(dims={"width": (320,)}))


@pytest.mark.parametrize(("text", "sizes"), [("1", (1,)), ("1, 4,16", (1, 4, 16))])
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "-1", "a", "1,", "1.5", "²"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(LoadTestError, match="such as 1,4"):
        parse_sizes(text)


def test_dims() -> None:
    assert parse_dims(["width=160,320", "image:2=48"]) == {"width": (160, 320), "image:2": (48,)}


@pytest.mark.parametrize("options", [["width"], ["=3"], ["w=1", "w=2"]])
def test_no_dims(options: list[str]) -> None:
    with pytest.raises(LoadTestError, match="NAME=SIZES"):
        parse_dims(options)

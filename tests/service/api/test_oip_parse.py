from typing import Any

import numpy as np
import pytest

from service.api.oip_outputs import RequestedOutput
from service.api.oip_parse import MAX_REMEMBERED_BYTES, InferParser
from service.errors import InvalidInput, ServiceError
from tests.service.api.oip_models import binary_body, body, make_spec, tensor_json, wire_elements, x_json

ONE = InferParser(make_spec())
X = np.array([[1, 2, 3]], dtype="<f4")
X_BINARY = tensor_json("x", "FP32", [1, 3], size=12)
MIXED = InferParser(
    make_spec(
        {
            "a": ("FP32", ("batch", 2)),
            "b": ("INT8", ("batch", "n")),
            "c": ("BYTES", ("batch", 1)),
            "d": ("BF16", ("batch", 1)),
        },
        {"y": ("FP32", ("batch", 2)), "z": ("FP32", ("batch", 2))},
    )
)


def test_a_json_request_with_everything_in_it() -> None:
    document = {
        "id": "rq-7",
        "parameters": {"priority": 2, "timeout": 50_000, "tenant": "a"},
        "inputs": [x_json(2)],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    parsed = ONE.parse(body(document), None)
    np.testing.assert_array_equal(parsed.inputs[0], np.full((2, 3), 0.5, dtype=np.float32))
    assert (parsed.rows, parsed.dims, parsed.request_id, parsed.nbytes) == (2, (), "rq-7", 24)
    assert (parsed.priority, parsed.timeout_ns, dict(parsed.parameters)) == (2, 50_000_000, {"tenant": "a"})
    assert parsed.outputs == (RequestedOutput(0, True, 0),)


def test_json_and_binary_inputs_mix_in_any_order() -> None:
    c = wire_elements(b"\xff\x00")
    request, header_length = binary_body(
        {
            "inputs": [
                tensor_json("c", "BYTES", [1, 1], size=len(c)),
                tensor_json("d", "BF16", [1, 1], data=[1]),
                tensor_json("b", "INT8", [1, 3], size=3),
                tensor_json("a", "FP32", [1, 2], data=[[1, 2]]),
            ],
            "parameters": {"binary_data_output": True},
        },
        c,
        b"\x01\xff\x03",
    )
    parsed = MIXED.parse(request, header_length)
    assert [array.tolist() for array in parsed.inputs] == [[[1, 2]], [[1, -1, 3]], [[b"\xff\x00"]], [[0x3F80]]]
    assert (parsed.rows, parsed.dims, parsed.nbytes) == (1, (3,), 8 + 3 + 6 + 2)
    assert parsed.outputs == (RequestedOutput(0, True, 0), RequestedOutput(1, True, 0))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_binary_input_is_a_read_only_view_on_any_kind_of_body(kind: Any) -> None:
    request, header_length = binary_body({"inputs": [X_BINARY]}, X.tobytes())
    request = kind(request)
    (array,) = ONE.parse(request, header_length).inputs
    np.testing.assert_array_equal(array, X)
    assert not array.flags.writeable
    assert np.shares_memory(array, np.frombuffer(request, dtype=np.uint8))


def test_header_length_of_the_whole_body_is_a_pure_json_request() -> None:
    request = body({"inputs": [x_json()]})
    assert ONE.parse(request, len(request)).inputs[0].tolist() == [[0.5, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("request_body", "header_length", "message"),
    [
        (b"", None, "the request body is empty"),
        (b"{}", None, "must have 'inputs'"),
        (b"{}", -1, r"inference header size should be in range \(0, 2\), got: -1"),
        (b"{}", 99999, r"inference header size should be in range \(0, 2\), got: 99999"),
        (body({"inputs": [x_json()]}) + b"extra", None, "failed to parse the request JSON buffer"),
        (body({"inputs": [X_BINARY]}), None, "expecting 12 additional bytes for model 'm'; nothing follows the JSON"),
        (body({"inputs": [x_json()], "id": 7}), None, "'id' must be a string, got 7"),
        (body({"inputs": [x_json()], "outputs": None}), None, "'outputs' must be a JSON array, got null"),
        (body({"inputs": [x_json()], "parameters": None}), None, "'parameters' must be a JSON object, got null"),
        (body({"inputs": [x_json()], "parameters": {"priority": 9}}), None, "parameter 'priority' is 9"),
        (body({"inputs": [tensor_json("x", "FP32", [1, 3], data=[1, None, "2"])]}), None, "holds a string, null"),
    ],
)
def test_bodies_that_break_the_protocol_are_refused(
    request_body: bytes, header_length: int | None, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        ONE.parse(request_body, header_length)


def test_every_truncated_or_extended_body_is_refused() -> None:
    request, header_length = binary_body({"inputs": [X_BINARY]}, X.tobytes())
    ONE.parse(request, header_length)
    for end in range(len(request)):
        with pytest.raises(InvalidInput):
            ONE.parse(request[:end], header_length)
    for wrong in (*range(1, header_length), *range(header_length + 1, len(request) + 9)):
        with pytest.raises(InvalidInput):
            ONE.parse(request, wrong)
    with pytest.raises(InvalidInput, match="unexpected additional input data for model 'm'"):
        ONE.parse(request + b"\x00", header_length)


def test_no_data_is_converted_before_the_whole_header_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("converted data of a request whose header is invalid")

    valid = {
        "inputs": [
            tensor_json("a", "FP32", [1, 2], data=[1, 2]),
            tensor_json("b", "INT8", [1, 3], size=3),
            tensor_json("c", "BYTES", [1, 1], data=["c"]),
            tensor_json("d", "BF16", [1, 1], data=[1]),
        ]
    }
    monkeypatch.setattr("service.api.oip_parse.array_from_json", forbidden)
    monkeypatch.setattr("service.api.oip_parse.array_from_binary", forbidden)
    for document, part in (
        (valid | {"inputs": valid["inputs"][:-1]}, b"123"),
        (valid | {"inputs": [*valid["inputs"][:-1], tensor_json("d", "BF16", [2, 1], data=[1])]}, b"123"),
        (valid | {"outputs": [{"name": "nope"}]}, b"123"),
        (valid | {"parameters": {"sequence_id": 1}}, b"123"),
        (valid | {"id": 1}, b"123"),
        (valid, b"12"),
        (valid, b"1234"),
    ):
        request, header_length = binary_body(document, part)
        with pytest.raises(ServiceError):
            MIXED.parse(request, header_length)
    with pytest.raises(AssertionError, match="converted data"):
        MIXED.parse(*binary_body(valid, b"123"))


@pytest.mark.parametrize(
    ("parser", "raw", "expected"),
    [
        (ONE, X.tobytes(), [[1.0, 2.0, 3.0]]),
        (InferParser(make_spec({"x": ("INT8", ("batch", "n", 2))})), bytes(6), [[[0, 0], [0, 0], [0, 0]]]),
        (InferParser(make_spec({"x": ("BYTES", ("batch", 1))})), b"any\xff", [[b"any\xff"]]),
        (InferParser(make_spec({"x": ("UINT8", ("n",))}, max_batch_size=0)), b"\x01\x02", [1, 2]),
    ],
)
def test_raw_binary_requests(parser: InferParser, raw: bytes, expected: list[Any]) -> None:
    parsed = parser.parse(raw, 0)
    assert parsed.inputs[0].tolist() == expected
    assert (parsed.rows, parsed.nbytes, parsed.outputs) == (1, len(raw), (RequestedOutput(0, True, 0),))


@pytest.mark.parametrize(
    ("parser", "raw", "message"),
    [
        (ONE, b"", "the raw binary request for model 'm' is empty"),
        (ONE, b"\x00" * 11, "Expected 12, got 11"),
        (ONE, b"\x00" * 24, "Expected 12, got 24"),
        (MIXED, b"\x00", r"needs a model with exactly one input, but 'm' has \['a', 'b', 'c', 'd'\]"),
        (InferParser(make_spec({"x": ("INT8", ("batch", "n", "k"))})), b"\x00", "more than one variable dimension"),
        (
            InferParser(make_spec({"x": ("INT8", ("batch", "n"))}, bucket_sizes={"n": (4, 8)})),
            bytes(9),
            "the largest size of dimension 'n' is 8",
        ),
    ],
)
def test_raw_binary_requests_that_make_no_tensor_are_refused(parser: InferParser, raw: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parser.parse(raw, 0)


def test_a_repeated_header_is_read_once_and_each_body_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = InferParser(make_spec())
    header = body({"inputs": [tensor_json("x", "FP32", [1, 3], size=12)], "id": "same"})
    first, second = (
        parser.parse(header + np.full((1, 3), value, np.float32).tobytes(), len(header)) for value in (1.0, 2.0)
    )
    assert (first.inputs[0][0, 0], second.inputs[0][0, 0]) == (1.0, 2.0)
    assert first.request_id == second.request_id == "same"
    monkeypatch.setattr("service.api.oip_parse.load_header", lambda _: pytest.fail("read again"))
    assert parser.parse(header + bytes(12), len(header)).inputs[0].sum() == 0


def test_what_is_wrong_with_a_body_is_seen_although_its_header_is_known() -> None:
    parser = InferParser(make_spec())
    header = body({"inputs": [tensor_json("x", "FP32", [1, 3], size=12)]})
    parser.parse(header + bytes(12), len(header))
    for rest in (bytes(11), bytes(13), b""):
        with pytest.raises(InvalidInput):
            parser.parse(header + rest, len(header))


def test_headers_beyond_the_limit_are_read_but_not_remembered() -> None:
    parser = InferParser(make_spec())
    header = body({"inputs": [tensor_json("x", "FP32", [1, 3], size=12)], "id": "i" * MAX_REMEMBERED_BYTES})
    assert parser.parse(header + bytes(12), len(header)).request_id == "i" * MAX_REMEMBERED_BYTES

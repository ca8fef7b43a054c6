import pytest

from service.api.oip_header import load_header, parse_header_length, parse_request_id, split_header
from service.errors import InvalidInput


@pytest.mark.parametrize(("value", "length"), [(None, None), (b"0", 0), (b" 153 ", 153), (b"-1", -1), (b"007", 7)])
def test_header_length_is_a_decimal_integer(value: bytes | None, length: int | None) -> None:
    assert parse_header_length(value) == length


@pytest.mark.parametrize("value", [b"", b"abc", b"1.5", b"1_0", b"+1", b"0x10", b"-", b"--1", b"9" * 5000, b"\xff\xb2"])
def test_header_length_of_another_form_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"Unable to parse Inference-Header-Content-Length, got: "):
        parse_header_length(value)


@pytest.mark.parametrize("length", [-1, 3, 99999, 1 << 62])
def test_header_length_outside_the_body_is_refused(length: int) -> None:
    with pytest.raises(InvalidInput, match=rf"inference header size should be in range \(0, 2\), got: {length}"):
        split_header(memoryview(b"{}"), length)


@pytest.mark.parametrize(("length", "part"), [(None, b"{}xy"), (2, b"{}"), (4, b"{}xy")])
def test_header_is_the_front_of_the_body(length: int | None, part: bytes) -> None:
    assert bytes(split_header(memoryview(b"{}xy"), length)) == part


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "the request body is empty"),
        (b"[]", "must be a JSON object with 'inputs', got an array"),
        (b"7", "must be a JSON object with 'inputs', got 7"),
        (b"{", "failed to parse the request JSON buffer"),
        (b'{"inputs":[]}x', "failed to parse the request JSON buffer"),
        (b'{"id":NaN}', "failed to parse the request JSON buffer"),
        (b'{"id":Infinity}', "failed to parse the request JSON buffer"),
        (b'{"id":1e999}', "failed to parse the request JSON buffer"),
        (b'{"id":"\xff"}', "failed to parse the request JSON buffer"),
        (b'{"id":"\\ud800"}', "failed to parse the request JSON buffer"),
        (b"[" * 100_000, "failed to parse the request JSON buffer"),
        (b'{"a":' * 100_000, "failed to parse the request JSON buffer"),
    ],
)
def test_anything_but_a_json_object_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_header(memoryview(header))


def test_request_id_is_a_string() -> None:
    assert parse_request_id({"id": "rq-7"}) == "rq-7"
    assert parse_request_id({}) == ""
    for value in (7, None, ["a"], True):
        with pytest.raises(InvalidInput, match="'id' must be a string"):
            parse_request_id({"id": value})

from __future__ import annotations

import json
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput, PayloadTooLarge, ServiceError, UnsupportedMediaType
from service.pipeline.text_media import MAX_BODY_BYTES, MAX_CHARACTERS, MAX_TEXTS, read_texts

JSON = "application/json"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (b'{"text": "one"}', ("one",)),
        (b'{"text": ["one", "", "\xc3\xa9"]}', ("one", "", "\u00e9")),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, "", "Application/JSON; charset=utf-8"])
def test_texts(body: bytes, content_type: str, texts: tuple[str, ...]) -> None:
    assert read_texts(body, content_type) == texts


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b'{"text": "\\ud800"}', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'["one"]', "it is an array"),
        (b'{"texts": "one"}', "it is an object with 'texts';"),
        (b'{"text": "one", "top_k": 1}', "an object with 'text', 'top_k';"),
        (b'{"text": 3}', "'text' is an integer"),
        (b"{}", "it is an object with none;"),
        (b'{"text": null}', "'text' is null"),
        (b'{"text": ["one", 2]}', "element 1 of 'text' is an integer"),
        (b'{"text": []}', "holds 0 texts"),
        (orjson.dumps({"text": ["x"] * (MAX_TEXTS + 1)}), f"holds {MAX_TEXTS + 1} texts"),
    ],
)
def test_bodies_that_are_refused(body: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_texts(body, JSON)


def test_texts_that_are_too_long_together_are_refused() -> None:
    half = "x" * (MAX_CHARACTERS // 2)
    assert len(read_texts(orjson.dumps({"text": [half, half]}), JSON)) == 2
    with pytest.raises(PayloadTooLarge, match=f"have {MAX_CHARACTERS + 1} characters together"):
        read_texts(orjson.dumps({"text": [half, half, "x"]}), JSON)


def test_a_body_is_bounded_before_it_is_parsed() -> None:
    with pytest.raises(PayloadTooLarge, match=f"has {MAX_BODY_BYTES + 1} bytes, texts of {MAX_CHARACTERS} characters"):
        read_texts(b"[" * (MAX_BODY_BYTES + 1), "")


def test_no_texts_are_too_large_that_are_short_enough() -> None:
    """However JSON writes them."""
    ferry = "\N{FERRIS WHEEL}"
    each = MAX_CHARACTERS // MAX_TEXTS
    texts = [ferry * each] * MAX_TEXTS
    body = json.dumps({"text": texts}, ensure_ascii=True).encode()
    assert len(body) > 12 * each * MAX_TEXTS
    assert read_texts(body, "") == tuple(texts)


@pytest.mark.parametrize(
    "document", [{f"k{index}": 1 for index in range(10_000)}, {"k" * 10_000: 1}, {"a\x1b[2J": 1}, {"\x00": 1}]
)
def test_what_a_message_repeats_is_bounded_and_printable(document: dict[str, int]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_texts(orjson.dumps(document), JSON)
    assert len(caught.value.message) < 300
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("content_type", ["image/png", "text/plain", "application/x-www-form-urlencoded"])
def test_other_types_are_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=f"'{content_type}' is not application/json"):
        read_texts(b"{}", content_type)


@given(st.binary(max_size=60))
def test_no_body_is_an_unexpected_error(body: bytes) -> None:
    with suppress(ServiceError):
        assert all(isinstance(text, str) for text in read_texts(body, JSON))

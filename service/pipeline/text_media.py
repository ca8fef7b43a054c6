"""The body of a text request: JSON `{"text": "..."}` or `{"text": ["...", ...]}`, bounded before it is tokenized."""

from __future__ import annotations

import orjson

from service.client_text import kind_text, name_text
from service.errors import InvalidInput, PayloadTooLarge, UnsupportedMediaType
from service.pipeline.media import parse_content_type

JSON_TYPE = "application/json"

MAX_TEXTS = 1024
MAX_CHARACTERS = 200_000
"""Of all texts of a request: where each is a token, as in Chinese, a million keep a thread busy for four seconds, and
then the event loop for a third of one, while what went beyond the longest row is looked at and dropped."""

MAX_BODY_BYTES = 13 * MAX_CHARACTERS
"""Of a body: JSON has at most 12 for a character, a pair of surrogates. To parse it keeps all other threads from
running, the event loop's too: a quarter of a second for 5 MB of names, and a body may have many times as much."""

_MAX_MEMBERS = 8
"""That a message names."""

_EXAMPLE = '{"text": ["first", "second"]}'


def read_texts(body: bytes, content_type: str) -> tuple[str, ...]:
    """The texts of a request, at least one.

    Args:
        body: the whole, already bounded, body.
        content_type: value of the header; an empty one counts as JSON.

    Raises:
        InvalidInput: the body is not such JSON, or holds no text or too many.
        PayloadTooLarge: the texts are too long, or the body cannot be such texts by its size alone.
        UnsupportedMediaType: the content type is another one.
    """
    media_type, _ = parse_content_type(content_type)
    if media_type not in {JSON_TYPE, ""}:
        raise UnsupportedMediaType(
            f"the content type {name_text(media_type)} is not {JSON_TYPE}, the one that a model of texts takes; set "
            f"it, for example with curl -H 'Content-Type: {JSON_TYPE}'"
        )
    if len(body) > MAX_BODY_BYTES:
        raise PayloadTooLarge(
            f"the body has {len(body)} bytes, texts of {MAX_CHARACTERS} characters have at most {MAX_BODY_BYTES}; "
            "send the others in further requests"
        )
    texts = _texts(body)
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidInput(
            f"the request holds {len(texts)} texts, from 1 to {MAX_TEXTS} are allowed; "
            "send the others in further requests"
        )
    characters = sum(map(len, texts))
    if characters > MAX_CHARACTERS:
        raise PayloadTooLarge(
            f"the texts have {characters} characters together, at most {MAX_CHARACTERS} are allowed; "
            "send the others in further requests"
        )
    return texts


def _texts(body: bytes) -> tuple[str, ...]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is no JSON: {error}; send {_EXAMPLE}") from None
    if not isinstance(document, dict) or set(document) != {"text"}:
        raise InvalidInput(
            f"the body must be an object with the member 'text' alone, it is {_found(document)}; send {_EXAMPLE}"
        )
    texts = document["text"]
    if isinstance(texts, str):
        return (texts,)
    if not isinstance(texts, list):
        raise InvalidInput(
            f"'text' is {kind_text(type(texts))}, a string or a list of strings is allowed; send {_EXAMPLE}"
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInput(f"element {index} of 'text' is {kind_text(type(text))}, only strings are allowed")
    return tuple(texts)


def _found(document: object) -> str:
    """What a body is that is not as it must be; of its members the first few."""
    if not isinstance(document, dict):
        return kind_text(type(document))
    shown = [name_text(name) for name in sorted(document)[:_MAX_MEMBERS]]
    if len(document) > _MAX_MEMBERS:
        shown.append("...")
    return f"an object with {', '.join(shown) or 'none'}"

"""How error messages show what a client sent: bounded in length, free of control characters."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_NAME_CHARS = 100
_MAX_DIMS = 16

_JSON_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true/false",
    int: "an integer",
    float: "a number with a fraction",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def name_text(name: str) -> str:
    """`name` in single quotes, cut after 100 characters, control characters escaped."""
    text = name if len(name) <= _MAX_NAME_CHARS else name[:_MAX_NAME_CHARS] + "..."
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return f"'{text}'"


def shape_text(shape: Sequence[object]) -> str:
    """`shape` as in `[-1,3,224]`, without blanks (clients match on that form), cut after 16 dimensions."""
    dims = [value_text(dim) for dim in shape[:_MAX_DIMS]]
    if len(shape) > _MAX_DIMS:
        dims.append("...")
    return f"[{','.join(dims)}]"


def value_text(value: object) -> str:
    """A JSON value in words: numbers as they are, everything else by its kind."""
    if type(value) is int or type(value) is float:
        return str(value)
    return kind_text(type(value))


def kind_text(kind: type) -> str:
    """The JSON word for a Python type that the JSON parser makes."""
    return _JSON_KINDS.get(kind, kind.__name__)

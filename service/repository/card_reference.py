"""`docs/model-card.md`, written from the schema: `python -m service.repository.card_reference > docs/model-card.md`."""

from __future__ import annotations

import enum
import json
import sys
import types
import typing
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from service.repository.card_errors import section_class
from service.repository.card_schema import CardFile, ShapeRangeSection

_INTRODUCTION = """\
# The model card

A model is a folder of the repository: `REPOSITORY/<model>/<version>/model.onnx` (or one `*.plan`, or both), with a
card `REPOSITORY/<model>/model.toml` beside the versions. The version's folder may be left out; the version is 1 then.
A model that needs nothing said needs no card. Unknown keys, wrong types and values out of range are errors when the
model loads: the message names the file, the key, what it holds and what it may hold.

This page is generated from the schema (`python -m service.repository.card_reference > docs/model-card.md`)."""
_HEADER = "| key | type | default | meaning | example |\n| --- | --- | --- | --- | --- |"
_TYPE_WORDS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def card_reference() -> str:
    """The complete reference of the card's keys, in Markdown: a table per section."""
    keys, tables, sections = [], [], []
    for name, field in CardFile.model_fields.items():
        section = section_class(field.annotation)
        if section is not None:
            sections.append(_section(f"`[{name}]`", section))
        elif "dict" in str(field.annotation):
            tables.append(_free_table(name, field))
        else:
            keys.append(_row(name, field))
    top = "\n".join(("## Top level\n", f"{CardFile.__doc__}\n", _HEADER, *keys))
    shapes = _section("One input of a `[[profile]]`", ShapeRangeSection)
    return "\n\n".join((_INTRODUCTION, top, *tables, shapes, *sections)) + "\n"


def _section(title: str, section: type[BaseModel]) -> str:
    rows = [_row(name, field) for name, field in section.model_fields.items()]
    return "\n".join((f"## {title}\n", f"{section.__doc__}\n", _HEADER, *rows))


def _free_table(name: str, field: FieldInfo) -> str:
    """A table whose keys are the model's own names, shown by its example."""
    is_array = typing.get_origin(field.annotation) is list
    heading = f"[[{name}]]" if is_array else f"[{name}]"
    lines = [f"{key} = {_toml(value)}" for key, value in (field.examples or [{}])[0].items()]
    example = "\n".join(("```toml", heading, *lines, "```"))
    values = typing.get_args(typing.get_args(field.annotation)[0] if is_array else field.annotation)[1]
    return f"## `{heading}`\n\n{field.description}\n\nValues: {_type_words(values)}.\n\n{example}"


def _row(name: str, field: FieldInfo) -> str:
    shown_type = _type_words(field.annotation) + _bounds(field)
    default = field.default
    if default is PydanticUndefined:
        default_words = "required"
    else:
        default_words = "none" if default in (None, []) else f"`{_toml(default)}`"
    examples = " or ".join(f"`{name} = {_toml(example)}`" for example in field.examples or ())
    cells = (f"`{name}`", shown_type, default_words, field.description or "", examples)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _bounds(field: FieldInfo) -> str:
    """Limits of a number, read from the constraints that pydantic enforces."""
    words = [
        f"{symbol} {getattr(constraint, attribute):.15g}"
        for constraint in field.metadata
        for attribute, symbol in (("ge", "≥"), ("gt", ">"), ("le", "≤"))
        if getattr(constraint, attribute, None) is not None
    ]
    return f", {', '.join(words)}" if words else ""


def _type_words(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_words(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type_words(part) for part in arguments if part is not type(None))
    if origin is list:
        return f"list of ({_type_words(arguments[0])})" if " " in _type_words(arguments[0]) else _plural(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " or ".join(f'`"{member.value}"`' for member in annotation)
    return _TYPE_WORDS.get(annotation, "table of `min`, `opt` and `max`")


def _plural(annotation: Any) -> str:
    return f"list of {_type_words(annotation)}s"


def _toml(value: Any) -> str:
    """A value as the card would hold it."""
    if isinstance(value, enum.Enum):
        return json.dumps(value.value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}" if value % 1 else f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.write(card_reference())

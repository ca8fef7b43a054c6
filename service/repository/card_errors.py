"""Words for what is wrong with a card: file, dotted key, what was got, what is allowed, the nearest valid key."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from service.errors import CardError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MAX_SHOWN = 80
_ALLOWED_BY_TYPE = {
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "missing": "is missing",
}
_TABLE_ARRAYS = frozenset({"profile"})

Location = tuple[int | str, ...]


def card_error(path: Path, schema: type[BaseModel], document: Mapping[str, Any], error: ValidationError) -> CardError:
    """The one error that tells everything that pydantic found in `document`, the card at `path`."""
    allowed: dict[Location, list[str]] = {}
    for detail in error.errors(include_url=False):
        location = _in_document(detail, document)
        words = _unknown_key(schema, location) if detail["type"] == "extra_forbidden" else _allowed(detail, location)
        allowed.setdefault(location, []).append(words)
    deepest = [own for own in allowed if not any(len(o) > len(own) and o[: len(own)] == own for o in allowed)]
    lines = [_line(document, location, allowed[location]) for location in deepest]
    return CardError(f"{path}: {lines[0]}" if len(lines) == 1 else "\n  ".join((f"{path}:", *lines)))


def _in_document(detail: ErrorDetails, document: Mapping[str, Any]) -> Location:
    """The error's place in the card's own keys: pydantic adds the members of a union as steps, which are none."""
    missing = detail["type"] == "missing"
    steps = detail["loc"][:-1] if missing else detail["loc"]
    location: list[int | str] = []
    here: Any = document
    for step in steps:
        inside = (isinstance(here, Mapping) and step in here) or (
            isinstance(here, list) and isinstance(step, int) and step < len(here)
        )
        if inside:
            here = here[step]
            location.append(step)
    return (*location, detail["loc"][-1]) if missing else tuple(location)


def _allowed(detail: ErrorDetails, location: Location) -> str:
    if detail["type"] == "list_type" and location and location[-1] in _TABLE_ARRAYS:
        return f"must be an array of tables: write [[{location[-1]}]]"
    words = _ALLOWED_BY_TYPE.get(detail["type"])
    if words is None:
        words = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        words = re.sub(r"^(List|String|Dictionary) should have", "must have", words)
    return words


def _unknown_key(schema: type[BaseModel], location: Location) -> str:
    key = str(location[-1])
    section = _section_at(schema, location[:-1])
    own = tuple(section.model_fields)
    for nearest in difflib.get_close_matches(key, own, n=1):
        return f"unknown key; did you mean '{nearest}'?"
    elsewhere = {name: dotted for dotted, name in _dotted_keys(schema)}
    for nearest in difflib.get_close_matches(key, elsewhere, n=1):
        return f"unknown key; did you mean {elsewhere[nearest]}?"
    return f"unknown key; valid here: {', '.join(own)}"


def _section_at(schema: type[BaseModel], location: Location) -> type[BaseModel]:
    """The section that the keys below `location` belong to."""
    if not location:
        return schema
    field = schema.model_fields.get(str(location[0]))
    inner = None if field is None else _model_in(field.annotation)
    return inner or schema


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section class inside an annotation such as `list[dict[str, Section]]`."""
    if (section := section_class(annotation)) is not None:
        return section
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def section_class(annotation: object) -> type[BaseModel] | None:
    """The annotation itself where it is a section's class, else None."""
    if get_origin(annotation) is not None:
        return None  # CPython 3.10 calls list[int] a type, and issubclass then fails on it
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _dotted_keys(schema: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Every key of the card as (where it stands, its last step)."""
    for name, field in schema.model_fields.items():
        yield f"'{name}' at the top of the card, before the first table", name
        section = section_class(field.annotation)
        for key in section.model_fields if section else ():
            yield f"'{key}' in [{name}]", key


def _line(document: Mapping[str, Any], location: Location, allowed: Sequence[str]) -> str:
    key = dotted(location) or "the card"
    words = " or ".join(dict.fromkeys(allowed)).replace(" or must be ", " or ")
    got = _shown(document, location)
    return f"{key}: got {got}, {words}" if got is not None else f"{key}: {words}"


def dotted(location: Location) -> str:
    """A place in the card as its owner would write it, such as `profile[0].images.min`."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _BARE_KEY.fullmatch(step) else json.dumps(step))
    return text


def _shown(document: Mapping[str, Any], location: Location) -> str | None:
    """The value at `location` as TOML would write it, shortened; None for a table or where nothing stands."""
    value: Any = document
    for step in location:
        if isinstance(value, Mapping) and step not in value:
            return None
        value = value[step]
    if isinstance(value, dict):
        return None
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."

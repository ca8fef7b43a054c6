"""Applies the lines that a finding names to a model's card. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def changed(card: str, lines: str) -> str:
    """The card with what `lines` say instead; what they do not name stays as it is. Comments are lost."""
    old, new = tomllib.loads(card), tomllib.loads(lines)
    merged = {**old}
    for key, value in new.items():
        both_tables = isinstance(value, dict) and isinstance(old.get(key), dict)
        merged[key] = {**old[key], **value} if both_tables else value
    return _text(merged)


def _text(document: Mapping[str, Any]) -> str:
    plain = [f"{key} = {_value(value)}" for key, value in document.items() if not _is_table(value)]
    for key, value in document.items():
        for table in value if isinstance(value, list) else [value]:
            if _is_table(value):
                heading = f"[[{key}]]" if isinstance(value, list) else f"[{key}]"
                plain += [heading, *(f"{name} = {_value(own)}" for name, own in table.items())]
    return "\n".join(plain) + "\n"


def _is_table(value: object) -> bool:
    """Whether it is a table, or a list of some."""
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _value(value: object) -> str:
    """In the notation that JSON and TOML share, but for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(own)}" for key, own in value.items()) + " }"
    return json.dumps(value)

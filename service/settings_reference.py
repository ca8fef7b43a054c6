"""The README's table of settings: `python -m service.settings_reference README.md` rewrites it from `Settings`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.settings import PREFIX, Settings

BEGIN = "<!-- settings:begin -->"
END = "<!-- settings:end -->"

_HEADER = "| variable | default | meaning | allowed |\n| --- | --- | --- | --- |\n"
_TYPE_WORDS = {"boolean": "`true` or `false`", "integer": "integer", "number": "number", "string": "text"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def settings_table() -> str:
    """Every setting as a row of a Markdown table, in the order of their declaration."""
    properties: Mapping[str, dict[str, Any]] = Settings.model_json_schema()["properties"]
    return _HEADER + "".join(_row(name, schema) for name, schema in properties.items())


def with_settings_table(text: str) -> str:
    """`text` with the present table between its markers.

    Raises:
        ValueError: `text` does not hold each marker once, the beginning first.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"expected the line {BEGIN} once, and after it the line {END} once; put them round the table")
    return f"{before}{BEGIN}\n{settings_table()}{END}{after}"


def _row(name: str, schema: Mapping[str, Any]) -> str:
    default = _shown(schema["default"])
    cells = (f"`{PREFIX}{name.upper()}`", default, schema["description"], _allowed(schema))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _shown(value: object) -> str:
    """A value as the environment would hold it."""
    if value is None:
        return "none"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _allowed(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return next(_allowed(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "enum" in schema:
        return " or ".join(_shown(value) for value in schema["enum"])
    if schema["type"] == "array":
        return "JSON list of texts"
    if schema.get("format") == "path":
        return "path"
    bounds = [f"{symbol} {schema[key]:.15g}" for key, symbol in _BOUNDS.items() if key in schema]
    return ", ".join((_TYPE_WORDS[schema["type"]], *bounds))


if __name__ == "__main__":
    readme = Path(sys.argv[1])
    readme.write_text(with_settings_table(readme.read_text(encoding="utf-8")), encoding="utf-8")

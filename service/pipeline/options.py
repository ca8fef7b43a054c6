"""Query options of tasks: their names, and numbers within bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from service.client_text import name_text
from service.errors import InvalidInput

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_WHOLE = re.compile(r"[0-9]{1,9}")


def check_names(options: Mapping[str, str], task: str, allowed: Sequence[str]) -> None:
    """Refuses options that a task does not take.

    Raises:
        InvalidInput: names the option and those allowed.
    """
    for name in options:
        if name not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InvalidInput(f"unknown option {name_text(name)}; task '{task}' takes {takes}")


def bounded_number(options: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    """An option that is a decimal number from `low` to `high`.

    Raises:
        InvalidInput: it is something else.
    """
    text = options.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) and low <= float(text) <= high:
        return float(text)
    raise InvalidInput(
        f"{name} is {name_text(text)}, a number from {low} to {high} is allowed, for example ?{name}={default}"
    )


def bounded_whole(options: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """An option that is a whole number from `low` to `high`.

    Raises:
        InvalidInput: it is something else.
    """
    text = options.get(name)
    if text is None:
        return default
    if _WHOLE.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise InvalidInput(
        f"{name} is {name_text(text)}, a whole number from {low} to {high} is allowed, for example ?{name}={default}"
    )

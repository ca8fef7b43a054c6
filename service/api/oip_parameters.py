"""Request-level parameters: those the server acts on, and the client's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from service.client_text import name_text, value_text
from service.errors import InvalidInput, Unsupported
from service.requests import ParameterValue
from service.units import NS_PER_US

_MAX_INT64 = (1 << 63) - 1
_SEQUENCE_NAMES = ("sequence_id", "sequence_start", "sequence_end")
_RESERVED_PREFIX = "triton_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The request-level parameters, checked.

    Attributes:
        priority: 1 is the most urgent; 0 asks for the model's default.
        timeout_ns: time that the request may spend in the queue, or None for the model's default.
        binary_data_output: whether outputs are binary unless they say otherwise themselves.
        own: the parameters that mean nothing to the server.
    """

    priority: int = 0
    timeout_ns: int | None = None
    binary_data_output: bool = False
    own: Mapping[str, ParameterValue] = field(default_factory=lambda: MappingProxyType({}))


NO_OPTIONS = RequestOptions()
"""What a request without parameters asks for."""


def parse_parameters(raw: Any, priority_levels: int) -> RequestOptions:
    """Checks the request's `parameters` object and sorts its entries.

    Args:
        raw: the JSON value.
        priority_levels: the least urgent priority that the model knows.

    Raises:
        InvalidInput: no object, a value that is no string, boolean, int64 or double, a name that the protocol
            reserves, or a value outside its range.
        Unsupported: the request belongs to a sequence.
    """
    if type(raw) is not dict:
        raise InvalidInput(f"'parameters' must be a JSON object, got {value_text(raw)}")
    if not raw:
        return NO_OPTIONS
    for name, value in raw.items():
        _check_parameter(name, value)
    _refuse_sequence(raw)
    priority = _uint(raw, "priority")
    if priority > priority_levels:
        raise InvalidInput(
            f"parameter 'priority' is {priority}, allowed are 1 (most urgent) to {priority_levels}, "
            "or 0 for the model's default"
        )
    timeout_us = _uint(raw, "timeout")
    own = {name: value for name, value in raw.items() if name not in _RESERVED_NAMES}
    return RequestOptions(
        priority=priority,
        timeout_ns=timeout_us * NS_PER_US or None,
        binary_data_output=boolean_parameter(raw, "binary_data_output", default=False),
        own=MappingProxyType(own),
    )


_RESERVED_NAMES = frozenset(("priority", "timeout", "binary_data_output", *_SEQUENCE_NAMES))


def boolean_parameter(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """The boolean parameter `name`, or `default` where it is absent.

    Raises:
        InvalidInput: it is not true or false.
    """
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise InvalidInput(f"parameter '{name}' must be true or false, got {value_text(value)}")
    return value


def _check_parameter(name: str, value: Any) -> None:
    if type(value) not in (str, bool, int, float):
        raise InvalidInput(
            f"parameter {name_text(name)} is {value_text(value)}; "
            "allowed are a string, true or false, a 64-bit integer and a double"
        )
    if type(value) is int and value > _MAX_INT64:
        raise InvalidInput(f"parameter {name_text(name)} is {value}, integers may be at most {_MAX_INT64}")
    if name.startswith(_RESERVED_PREFIX):
        raise InvalidInput(
            f"parameter {name_text(name)} is reserved: names that start with '{_RESERVED_PREFIX}' are not the "
            "client's to set; rename it"
        )


def _refuse_sequence(parameters: Mapping[str, Any]) -> None:
    """Clients send the defaults (0, "", false) of a request that belongs to no sequence; those are harmless."""
    for name in _SEQUENCE_NAMES:
        if parameters.get(name):
            raise Unsupported(
                f"parameter '{name}' is set, but this server keeps no state between requests; "
                "send each request by itself, without sequence parameters"
            )


def _uint(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        unit = " in microseconds" if name == "timeout" else ""
        raise InvalidInput(
            f"parameter '{name}' must be a non-negative integer{unit}, got {value_text(value)}; "
            "0 asks for the model's default"
        )
    return value

"""The protocol's log and trace settings as pure functions of what is set and what is asked for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from service.client_text import name_text, value_text
from service.errors import InvalidInput, Unsupported

FIXED_LOG_SETTINGS: Mapping[str, str] = {"log_file": "", "log_format": "default"}

LEVEL_BY_FLAG: Mapping[str, int] = {
    "log_info": logging.INFO,
    "log_warning": logging.WARNING,
    "log_error": logging.ERROR,
}
"""The protocol's switches and the level of each, from the most talkative."""

TRACE_SETTINGS: Mapping[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


def log_settings(level: int) -> dict[str, Any]:
    """What a logger of this level logs, in the protocol's words."""
    return {
        "log_file": FIXED_LOG_SETTINGS["log_file"],
        **{flag: level <= own for flag, own in LEVEL_BY_FLAG.items()},
        "log_verbose_level": 1 if level <= logging.DEBUG else 0,
        "log_format": FIXED_LOG_SETTINGS["log_format"],
    }


def level_after(level: int, change: Mapping[str, Any]) -> int:
    """The level of a logger, now at `level`, after a change of some log settings.

    Raises:
        InvalidInput: a setting is unknown, of the wrong type or cannot be changed, or the settings do not nest:
            a logger that passes one kind of message passes all graver ones.
    """
    for name, value in change.items():
        _check_log_setting(name, value)
    wanted = {**log_settings(level), **change}
    verbose = wanted["log_verbose_level"] > 0
    switches = {"log_verbose_level": verbose, **{flag: wanted[flag] for flag in LEVEL_BY_FLAG}}
    levels = {"log_verbose_level": logging.DEBUG, **LEVEL_BY_FLAG}
    enabled = [name for name, is_on in switches.items() if is_on]
    if not enabled:
        return logging.CRITICAL
    silenced = [name for name in switches if levels[name] > levels[enabled[0]] and not switches[name]]
    if silenced:
        raise InvalidInput(
            f"{' and '.join(silenced)} would be off while {enabled[0]} is on, but graver messages are always logged "
            f"with lighter ones; switch {enabled[0]} off as well, or leave {' and '.join(silenced)} on"
        )
    return levels[enabled[0]]


def trace_settings_after(change: Mapping[str, Any]) -> dict[str, Any]:
    """The trace settings after a change: always the same, as null and the present values are all that is taken.

    Raises:
        InvalidInput: a setting is unknown.
        Unsupported: a setting would change.
    """
    for name, value in change.items():
        if name not in TRACE_SETTINGS:
            raise InvalidInput(f"trace setting {name_text(name)} is unknown, allowed are {sorted(TRACE_SETTINGS)}")
        is_off = name == "trace_level" and value == "OFF"
        if value is not None and not is_off and value != TRACE_SETTINGS[name]:
            raise Unsupported(
                f"'{name}' cannot be changed: this server writes no Triton traces, 'trace_level' stays OFF; "
                "the Server-Timing header and /metrics show the stages of requests"
            )
    return dict(TRACE_SETTINGS)


def _check_log_setting(name: str, value: Any) -> None:
    if name in FIXED_LOG_SETTINGS:
        if value != FIXED_LOG_SETTINGS[name]:
            raise InvalidInput(
                f"'{name}' cannot be changed over the network; redirect the server's standard error where it is started"
            )
    elif name in LEVEL_BY_FLAG:
        if type(value) is not bool:
            raise InvalidInput(f"'{name}' must be true or false, got {value_text(value)}")
    elif name == "log_verbose_level":
        if type(value) is not int or value < 0:
            raise InvalidInput(f"'{name}' must be an integer of 0 or more, got {value_text(value)}")
    else:
        allowed = sorted([*LEVEL_BY_FLAG, "log_verbose_level"])
        raise InvalidInput(f"log setting {name_text(name)} is unknown, allowed are {allowed}")

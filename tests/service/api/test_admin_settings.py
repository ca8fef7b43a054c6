from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.admin_settings import LEVEL_BY_FLAG, TRACE_SETTINGS, level_after, log_settings, trace_settings_after
from service.errors import InvalidInput, ServiceError, Unsupported

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
CHANGES = st.fixed_dictionaries(
    {}, optional={"log_verbose_level": st.integers(0, 2), **{flag: st.booleans() for flag in LEVEL_BY_FLAG}}
)


@pytest.mark.parametrize("level", LEVELS)
def test_present_settings_change_nothing(level: int) -> None:
    assert level_after(level, log_settings(level)) == level
    assert level_after(level, {}) == level


@given(level=st.sampled_from(LEVELS), change=CHANGES)
def test_what_is_accepted_is_what_is_then_logged(level: int, change: dict[str, Any]) -> None:
    try:
        after = log_settings(level_after(level, change))
    except InvalidInput as error:
        assert "would be off while" in error.message  # noqa: PT017 - either outcome is checked
        return
    for flag in LEVEL_BY_FLAG:
        assert after[flag] == {**log_settings(level), **change}[flag]
    verbose = {**log_settings(level), **change}["log_verbose_level"]
    assert after["log_verbose_level"] == min(1, verbose)


@pytest.mark.parametrize(
    ("level", "change", "after"),
    [
        (logging.INFO, {"log_verbose_level": 1}, logging.DEBUG),
        (logging.DEBUG, {"log_verbose_level": 0}, logging.INFO),
        (logging.INFO, {"log_info": False}, logging.WARNING),
        (logging.ERROR, {"log_info": True, "log_warning": True}, logging.INFO),
        (logging.INFO, {"log_info": False, "log_warning": False, "log_error": False}, logging.CRITICAL),
    ],
)
def test_changes(level: int, change: dict[str, Any], after: int) -> None:
    assert level_after(level, change) == after


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"log_file": "/tmp/x"}, "'log_file' cannot be changed over the network"),
        ({"log_format": "ISO8601"}, "'log_format' cannot be changed"),
        ({"log_error": False}, "log_error would be off while log_info is on"),
        ({"log_verbose_level": -1}, "must be an integer of 0 or more, got -1"),
        ({"log_verbose_level": True}, "must be an integer of 0 or more, got true/false"),
        ({"log_verbose_level": "1"}, "got a string"),
        ({"log_info": 1}, "'log_info' must be true or false, got 1"),
        ({"log_info": None}, "got null"),
        ({"log_inf": True}, "log setting 'log_inf' is unknown"),
    ],
)
def test_refused_log_settings(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        level_after(logging.INFO, change)


@pytest.mark.parametrize(
    "change", [{}, dict(TRACE_SETTINGS), {"trace_level": "OFF"}, {"trace_level": None, "trace_rate": None}]
)
def test_trace_settings_stay(change: dict[str, Any]) -> None:
    assert trace_settings_after(change) == TRACE_SETTINGS


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"trace_level": ["TIMESTAMPS"]}, Unsupported),
        ({"trace_level": ["OFF", "TIMESTAMPS"]}, Unsupported),
        ({"trace_rate": "1"}, Unsupported),
        ({"trace_rate": 1000}, Unsupported),
        ({"trace_file": "/tmp/trace.json"}, Unsupported),
        ({"trace_levels": ["OFF"]}, InvalidInput),
    ],
)
def test_refused_trace_settings(change: dict[str, Any], error: type[ServiceError]) -> None:
    with pytest.raises(error):
        trace_settings_after(change)

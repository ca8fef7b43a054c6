from typing import Any

import pytest

from service.api.oip_parameters import NO_OPTIONS, RequestOptions, parse_parameters
from service.errors import InvalidInput, Unsupported

LEVELS = 3


@pytest.mark.parametrize(
    ("raw", "options"),
    [
        ({}, NO_OPTIONS),
        ({"priority": 0, "timeout": 0}, NO_OPTIONS),
        ({"priority": 3}, RequestOptions(priority=3)),
        ({"timeout": 50_000}, RequestOptions(timeout_ns=50_000_000)),
        ({"binary_data_output": True}, RequestOptions(binary_data_output=True)),
        ({"sequence_id": 0, "sequence_start": False, "sequence_end": False}, NO_OPTIONS),
        ({"sequence_id": ""}, NO_OPTIONS),
        (
            {"tenant": "a", "n": -5, "p": 0.25, "f": False},
            RequestOptions(own={"tenant": "a", "n": -5, "p": 0.25, "f": False}),
        ),
        ({"big": (1 << 63) - 1}, RequestOptions(own={"big": (1 << 63) - 1})),
    ],
)
def test_parameters_are_sorted_into_the_servers_and_the_clients(raw: dict[str, Any], options: RequestOptions) -> None:
    assert parse_parameters(raw, LEVELS) == options


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "'parameters' must be a JSON object, got null"),
        ([], "'parameters' must be a JSON object, got an array"),
        ({"a": {"b": 1}}, "parameter 'a' is an object"),
        ({"a": [1]}, "parameter 'a' is an array"),
        ({"a": None}, "parameter 'a' is null"),
        ({"a": 1 << 63}, "integers may be at most 9223372036854775807"),
        ({"triton_anything": 1}, "parameter 'triton_anything' is reserved"),
        ({"priority": -1}, "parameter 'priority' must be a non-negative integer, got -1"),
        ({"priority": 4}, r"parameter 'priority' is 4, allowed are 1 \(most urgent\) to 3"),
        ({"priority": True}, "parameter 'priority' must be a non-negative integer, got true/false"),
        ({"priority": "1"}, "parameter 'priority' must be a non-negative integer, got a string"),
        ({"timeout": -1}, "parameter 'timeout' must be a non-negative integer in microseconds, got -1"),
        ({"timeout": 1.5}, "parameter 'timeout' must be a non-negative integer in microseconds, got 1.5"),
        ({"binary_data_output": 1}, "parameter 'binary_data_output' must be true or false, got 1"),
    ],
)
def test_malformed_parameters_are_refused(raw: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_parameters(raw, LEVELS)


@pytest.mark.parametrize(
    "raw", [{"sequence_id": 7}, {"sequence_id": "s"}, {"sequence_start": True}, {"sequence_end": True}]
)
def test_sequences_are_not_offered(raw: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="keeps no state between requests"):
        parse_parameters(raw, LEVELS)


def test_the_clients_parameters_are_read_only() -> None:
    with pytest.raises(TypeError):
        parse_parameters({"a": 1}, LEVELS).own["b"] = 2  # type: ignore[index]

from typing import Any

import pytest

from service.api.oip_places import Place, read_place
from service.errors import InvalidInput


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({}, None),
        ({"binary_data_size": 4}, None),
        ({"shared_memory_region": "r", "shared_memory_byte_size": 4}, Place("r", 0, 4)),
        ({"shared_memory_region": "r", "shared_memory_byte_size": 0, "shared_memory_offset": 8}, Place("r", 8, 0)),
    ],
)
def test_a_place_is_read(parameters: dict[str, Any], place: Place | None) -> None:
    assert read_place("input 'x'", parameters) == place


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shared_memory_offset": 4}, "input 'x' sets 'shared_memory_offset' without 'shared_memory_region'"),
        ({"shared_memory_byte_size": 4}, "input 'x' sets 'shared_memory_byte_size' without 'shared_memory_region'"),
        ({"shared_memory_region": "r"}, "'shared_memory_byte_size' of input 'x' must be .* got null"),
        ({"shared_memory_region": 1}, "'shared_memory_region' of input 'x' must be the name .* got 1"),
        ({"shared_memory_region": ""}, "'shared_memory_region' of input 'x' must be the name"),
        ({"shared_memory_region": "r", "shared_memory_byte_size": -1}, "non-negative integer of bytes, got -1"),
        (
            {"shared_memory_region": "r", "shared_memory_byte_size": True},
            "non-negative integer of bytes, got true/false",
        ),
        ({"shared_memory_region": "r", "shared_memory_byte_size": 4.0}, "non-negative integer of bytes, got 4.0"),
        (
            {"shared_memory_region": "r", "shared_memory_byte_size": 4, "shared_memory_offset": "0"},
            "'shared_memory_offset' of input 'x' must be .* got a string",
        ),
    ],
)
def test_a_malformed_place_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_place("input 'x'", parameters)

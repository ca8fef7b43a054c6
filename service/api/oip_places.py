"""Where a tensor lies in a client's shared memory: the parameters of an input or an output that say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from service.client_text import value_text
from service.errors import InvalidInput, Unsupported

REGION = "shared_memory_region"
OFFSET = "shared_memory_offset"
BYTE_SIZE = "shared_memory_byte_size"


class Place(NamedTuple):
    """A part of a region.

    Attributes:
        region: name of the region.
        offset: where it begins, in bytes from the beginning of the region.
        nbytes: its size.
    """

    region: str
    offset: int
    nbytes: int


def read_place(subject: str, parameters: Mapping[str, Any]) -> Place | None:
    """The place that the parameters of a tensor name, or None; the region is not looked up.

    Args:
        subject: the tensor, for messages.
        parameters: of the tensor.

    Raises:
        InvalidInput: it is named in part, or malformed.
    """
    if REGION not in parameters:
        for name in (OFFSET, BYTE_SIZE):
            if name in parameters:
                raise InvalidInput(f"{subject} sets '{name}' without '{REGION}'; name the region too, or leave it out")
        return None
    region = parameters[REGION]
    if type(region) is not str or not region:
        raise InvalidInput(f"'{REGION}' of {subject} must be the name of a registered region, got {value_text(region)}")
    return Place(region, _size(subject, parameters, OFFSET, 0), _size(subject, parameters, BYTE_SIZE, None))


def not_shared() -> Unsupported:
    """What a request is told that names a region, where the extension is off."""
    return Unsupported(
        "a tensor of the request lies in a shared memory region, which this server does not offer; send it in the body "
        "with 'binary_data_size', receive it with \"binary_data\": true, or start the server with "
        "INFERLANE_SYSTEM_SHARED_MEMORY_ENABLED=true"
    )


def _size(subject: str, parameters: Mapping[str, Any], name: str, default: int | None) -> int:
    value = parameters.get(name, default)
    if type(value) is not int or value < 0:
        raise InvalidInput(f"'{name}' of {subject} must be a non-negative integer of bytes, got {value_text(value)}")
    return value

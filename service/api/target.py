"""Which inference a path names. String operations alone: this runs for every request."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "/v2/models/"


class Target(NamedTuple):
    """A model, perhaps a version, and what is asked of it.

    Attributes:
        model: the name, percent-decoded.
        version: the version's number, or None for the one that the server prefers.
        verb: `infer`, `predict` or `stream`.
    """

    model: str
    version: str | None
    verb: str


def parse_target(path: str) -> Target | None:
    """The target of `/v2/models/M[/versions/N]/{infer,predict}`, or None for every other path.

    Args:
        path: percent-decoded, as ASGI gives it.
    """
    if not path.startswith(PREFIX) or not path.endswith(("/infer", "/predict")):
        return None
    return _split(path)


def parse_stream_target(path: str) -> Target | None:
    """The target of `/v2/models/M[/versions/N]/stream`, or None for every other path.

    Args:
        path: percent-decoded.
    """
    if not path.startswith(PREFIX) or not path.endswith("/stream"):
        return None
    return _split(path)


def _split(path: str) -> Target | None:
    parts = path[len(PREFIX) :].split("/")
    if len(parts) == 2 and parts[0]:
        return Target(parts[0], None, parts[1])
    if len(parts) == 4 and parts[0] and parts[1] == "versions" and parts[2].isascii() and parts[2].isdigit():
        return Target(parts[0], parts[2], parts[3])
    return None

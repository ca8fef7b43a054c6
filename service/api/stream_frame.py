"""One frame of a stream: what it holds, where it stands, and what its client is told about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson

from service.api.errors import status_of
from service.api.exchange import Exchange
from service.errors import ServiceError
from service.repository.composed import AnyModel


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client is told about a frame.

    Attributes:
        text: a JSON object.
        served: the model that answered; None where the frame failed or was dropped.
        rows: rows that were inferred.
        nbytes: of the model's part of it.
    """

    text: str
    served: AnyModel | None = None
    rows: int = 0
    nbytes: int = 0


@dataclass(slots=True, eq=False)
class Frame:
    """A frame between its arrival and its answer. Belongs to the event loop.

    Attributes:
        number: the client's count, from 0.
        exchange: the frame as a request; its body is what was sent, until it is released.
        nbytes: of what was sent.
        held_bytes: what it holds of the budget.
        outcome: its answer, once there is one.
        task: works on it, once that has begun.
    """

    number: int
    exchange: Exchange
    nbytes: int
    held_bytes: int
    outcome: asyncio.Future[Answer]
    task: asyncio.Task[None] | None = None


def success(number: int, body: bytes) -> str:
    """The answer to a frame that has a result: the task's, with the frame's number before it.

    Args:
        number: the frame's.
        body: a JSON object with at least one member.
    """
    return f'{{"frame":{number},{body[1:].decode()}'


def failure(number: int, error: ServiceError, overload_status: int) -> str:
    """The answer to a frame that has none; the stream goes on."""
    return _json({"frame": number, "error": error.message, "status": status_of(error, overload_status)})


def dropped(number: int) -> str:
    """The answer to a frame that gave way to a newer one."""
    return _json({"frame": number, "dropped": True})


def refusal(message: str) -> str:
    """What a client is told before its stream is closed."""
    return _json({"error": message})


def _json(said: object) -> str:
    return orjson.dumps(said).decode()

"""Messages between the process that a bench runs in and its client processes.

Both sides are processes of one program and of one machine, so messages are pickles, each with its length before it.
An `Order` is answered by `Ready` or `Failed`; after `Ready` follows the `Window` of the step, answered by a `Tally` or
`Failed`.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import BinaryIO

from loadtest.session import Session, StepJob

LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Order:
    """A step to prepare; a `Window` to run it in follows once every process has answered `Ready`."""

    session: Session
    job: StepJob


@dataclass(frozen=True, slots=True)
class Ready:
    """The step is prepared: payloads tried, connections open."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The load cannot be run as asked; `reason` is the message of the `LoadTestError`."""

    reason: str


def packed(message: object) -> bytes:
    """A message as it goes over the socket."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def read_message(source: BinaryIO) -> object:
    """The next message, or None at the end; blocks until then."""
    head = source.read(LENGTH.size)
    return pickle.loads(source.read(LENGTH.unpack(head)[0])) if len(head) == LENGTH.size else None

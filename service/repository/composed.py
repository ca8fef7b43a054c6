"""A model that is composed of others: it has a card and a task, and no tensors, lanes or files of its own.

Its members are ordinary models, so what it asks of them joins the batches of everybody who uses them. It holds the very
versions that its task was made for: when one of them is replaced, the registry replaces it as well, and the old version
ends only after the requests that still need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from service.buckets import BucketTable
from service.cards import ModelCard
from service.errors import Overloaded, ShuttingDown
from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.layout import IMPLICIT_VERSION
from service.repository.served import ServedModel
from service.telemetry.recorder import ModelRecorder

COMPOSED_PLATFORM = "ensemble"
"""Triton's word for a model that is made of others."""


class InFlight:
    """Counts requests in progress, bounds them, and lets them end. Belongs to the event loop.

    A member cannot know how much work its requests bring to the next one, so beyond some number of them all would be
    late together, after work that is then lost: here is where they are refused instead.

    Args:
        limit: most requests in progress.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit
        self._is_refusing = False
        self._idle: asyncio.Event | None = None

    @contextmanager
    def taken(self, name: str) -> Iterator[None]:
        """Counts a request of model `name` while it runs.

        Raises:
            ShuttingDown: `drain` has begun.
            Overloaded: there are as many as may be.
        """
        if self._is_refusing:
            raise ShuttingDown(f"model '{name}' is being unloaded or replaced; send the request again")
        if self.count >= self._limit:
            raise Overloaded(
                f"model '{name}' has {self.count} requests in progress, {self._limit} may be (max_queued_requests in "
                "[batching] of its card); retry later or send less at once",
                retry_after_s=1.0,
            )
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
            if not self.count and self._idle is not None:
                self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Takes no more requests and waits until those in progress have ended, `timeout_s` at most."""
        self._is_refusing = True
        if not self.count:
            return
        self._idle = asyncio.Event()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except asyncio.TimeoutError:
            return  # their next step meets a member that takes nothing more


@dataclass(frozen=True, slots=True, eq=False)
class ComposedModel:
    """A composed model that serves.

    Attributes:
        spec: name, version and card; it has no tensors.
        recorder: counts its requests.
        task: what `/predict` makes of its members.
        members: by the card's key, the models that it is composed of.
        in_flight: its requests in progress.
    """

    spec: ModelSpec
    recorder: ModelRecorder
    task: Task
    members: Mapping[str, ServedModel]
    in_flight: InFlight

    @property
    def lack(self) -> str:
        """What it does not serve although its card says so: nothing; its members speak for themselves."""
        return ""


AnyModel: TypeAlias = ServedModel | ComposedModel
"""Whatever serves under a name."""


def composed_spec(card: ModelCard) -> ModelSpec:
    """The specification of a composed model: no tensors, and so no batches of its own."""
    return ModelSpec(
        name=card.name,
        version=IMPLICIT_VERSION,
        platform=COMPOSED_PLATFORM,
        inputs=(),
        outputs=(),
        has_batch_dim=False,
        buckets=BucketTable((1,)),
        card=card,
    )

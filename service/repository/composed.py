"""A model that is composed of others: it has a card and a task, and no tensors, lanes or files of its own.

Its members are ordinary models, so what it asks of them joins the batches of everybody who uses them. It holds the very
versions that its task was made for: when one of them is replaced, the registry replaces it as well, and the old version
ends only after the requests that still need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from service.buckets import BucketTable
from service.cards import ModelCard
from service.errors import DeadlineExceeded, Overloaded, ShuttingDown
from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.forecast import ChainForecast, Progress
from service.repository.layout import IMPLICIT_VERSION
from service.repository.plain import PlainModel
from service.repository.served import ServedModel
from service.requests import Clock
from service.telemetry.activity import Activity
from service.telemetry.recorder import ModelRecorder
from service.units import NS_PER_MS, NS_PER_S

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
        forecast: when a new one would end.
        activity: what goes on in it; its members have theirs.
    """

    spec: ModelSpec
    recorder: ModelRecorder
    task: Task
    members: Mapping[str, PlainModel]
    in_flight: InFlight
    forecast: ChainForecast = field(default_factory=ChainForecast)
    activity: Activity = field(default_factory=lambda: Activity(0))

    @contextmanager
    def admitted(self, clock: Clock, deadline_ns: int) -> Iterator[Progress]:
        """Counts a request while it runs, and learns from it; refuses one that would be late before it costs anything.

        A model at rest takes every request: whatever it has learnt, that is how it learns better.

        Args:
            clock: monotonic nanoseconds.
            deadline_ns: when its last member must have begun with it.

        Raises:
            ShuttingDown: the model is being replaced.
            Overloaded: too many are in progress, or it would be late.
        """
        with self.in_flight.taken(self.spec.name):
            now_ns = clock()
            raw_ns = self.forecast.raw_ns(self._backlog_ns)
            self._check_time(self.forecast.safe_ns(raw_ns), deadline_ns - now_ns)
            progress = self.forecast.begin(now_ns=now_ns, deadline_ns=deadline_ns, raw_ns=raw_ns)
            try:
                yield progress
            except BaseException as error:
                is_refused_on_its_way = isinstance(error, Overloaded) and bool(progress.brought_ns)
                if is_refused_on_its_way or isinstance(error, DeadlineExceeded):
                    self.forecast.end(progress, now_ns=clock(), is_late=True)
                else:
                    self.forecast.forget(progress)
                raise
            self.forecast.end(progress, now_ns=clock())

    def _backlog_ns(self, member: str) -> float:
        served = self.members[member]
        return served.batcher.backlog_ns(served.spec.card.batching.default_priority)

    def _check_time(self, needed_ns: float, allowed_ns: int) -> None:
        if needed_ns > allowed_ns and self.in_flight.count > 1:
            raise Overloaded(
                f"model '{self.spec.name}' has {self.in_flight.count - 1} requests in progress and would take "
                f"{needed_ns / NS_PER_MS:.0f} ms for one more, {max(0, allowed_ns) / NS_PER_MS:.0f} ms are allowed "
                "(default_timeout_ms in [batching] of its card); retry later or send less at once",
                retry_after_s=(needed_ns - allowed_ns) / NS_PER_S,
            )

    @property
    def lack(self) -> str:
        """What it does not serve although its card says so: nothing; its members speak for themselves."""
        return ""


AnyModel: TypeAlias = PlainModel | ComposedModel
"""Whatever takes requests under a name."""

LoadedModel: TypeAlias = ServedModel | ComposedModel
"""Whatever was loaded in this process and serves under a name."""


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

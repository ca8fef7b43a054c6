"""What a front end serves: a copy of the engine's catalogue, whose models hand their requests to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from service.errors import ModelLoadFailed, ServiceError
from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.catalogue import Catalogue
from service.repository.composed import AnyModel, ComposedModel, InFlight
from service.repository.plain import PlainModel
from service.repository.served import IndexEntry, ModelState
from service.requests import Clock
from service.transport.mirrored_regions import MirroredRegions
from service.transport.objects import PublishedCatalogue, PublishedComposition, PublishedModel
from service.transport.remote_batcher import RemoteBatcher
from service.transport.remote_recorder import RemoteRecorder
from service.transport.remote_requests import RemoteRequests, engine_away

MakeTask: TypeAlias = Callable[[ModelSpec], Task | None]
"""Makes what `/predict` does with a model; blocking. Raises ModelLoadFailed."""

ComposeTask: TypeAlias = Callable[[ModelSpec, Mapping[str, ModelSpec]], Task]
"""Makes the task of a composed model, given its members by the card's key; at once. Raises ModelLoadFailed."""

MAX_WAIT_S = 5.0
"""How long requests of a composed model that was replaced may still need its members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTools:
    """What a mirror makes models with.

    Attributes:
        make_task: on a worker thread.
        compose_task: on the event loop.
        requests: where those of all models go.
        recorder: counts them.
        regions: of clients' shared memory, which follow the same catalogue.
        front_ends: how many share the engine, and what a composed model takes at once.
        clock: monotonic nanoseconds.
    """

    make_task: MakeTask
    compose_task: ComposeTask
    requests: RemoteRequests
    recorder: RemoteRecorder
    regions: MirroredRegions
    front_ends: int
    clock: Clock


class Mirror:
    """The models of a front end; looks up as the registry does. On the event loop.

    Args:
        tools: makes them.
    """

    def __init__(self, tools: MirrorTools) -> None:
        self._tools = tools
        self._catalogue: Catalogue[AnyModel] | None = None
        self._plain: dict[int, PlainModel] = {}
        self._composed: dict[int, ComposedModel] = {}

    def get(self, name: str, version: str | None = None) -> AnyModel:
        """The model to submit to; see `Models`.

        Raises:
            NotReady: there is no engine, too.
            ModelNotFound: no such model or version.
        """
        if self._catalogue is None:
            raise engine_away()
        return self._catalogue.get(name, version)

    def lose(self) -> None:
        """The engine is gone, with all that it published."""
        self._catalogue = None
        self._plain, self._composed = {}, {}
        self._tools.regions.follow(())
        self._tools.recorder.lose()

    async def follow(self, published: PublishedCatalogue) -> None:
        """Serves by a catalogue; returns once nothing that it replaced will be asked for anything more.

        What both have stays as it is, with its task and what was learnt of it.
        """
        self._tools.regions.follow(published.regions)
        catalogue: Catalogue[AnyModel] = Catalogue()
        for entry in published.unavailable:
            catalogue.explain(entry)
        plain: dict[int, PlainModel] = {}
        for each in published.models:
            if (made := await self._made(catalogue, each)) is not None:
                plain[each.number] = made
        composed: dict[int, ComposedModel] = {}
        for composition in published.compositions:
            if (composite := self._composition(catalogue, composition, plain)) is not None:
                composed[composition.number] = composite
        models: list[AnyModel] = [*plain.values(), *composed.values()]
        for model in models:
            catalogue.put(model)
        if published.is_complete:
            catalogue.complete()
        retired = [old for number, old in self._composed.items() if number not in composed]
        self._catalogue, self._plain, self._composed = catalogue, plain, composed
        self._tools.recorder.keep(frozenset((*plain, *composed)))
        await asyncio.gather(*(old.in_flight.drain(MAX_WAIT_S) for old in retired))

    async def _made(self, catalogue: Catalogue[AnyModel], published: PublishedModel) -> PlainModel | None:
        """A published model, the same as before if it is; None, and why, where its task cannot be made here."""
        known = self._plain.get(published.number)
        if known is not None:
            return known
        tools = self._tools
        try:
            task = await asyncio.to_thread(tools.make_task, published.spec)
        except ServiceError as error:
            catalogue.explain(_unavailable(published.spec, error))
            return None
        recorder = tools.recorder.for_model(published)
        batcher = RemoteBatcher(published, tools.requests, recorder.activity, tools.clock)
        return PlainModel(published.spec, batcher, recorder, task)

    def _composition(
        self, catalogue: Catalogue[AnyModel], published: PublishedComposition, plain: Mapping[int, PlainModel]
    ) -> ComposedModel | None:
        """Likewise; what is made of a model that cannot be made here is left out with it."""
        known = self._composed.get(published.number)
        if known is not None:
            return known
        tools, spec = self._tools, published.spec
        members = {key: plain[number] for key, number in published.members.items() if number in plain}
        try:
            if len(members) < len(published.members):
                raise ModelLoadFailed(f"model '{spec.name}': one of its members does not serve")
            task = tools.compose_task(spec, {key: member.spec for key, member in members.items()})
        except ServiceError as error:
            catalogue.explain(_unavailable(spec, error))
            return None
        recorder = tools.recorder.for_model(published)
        share = -(-spec.card.batching.max_queued_requests // tools.front_ends)
        return ComposedModel(
            spec, recorder, task, MappingProxyType(members), InFlight(share), activity=recorder.activity
        )


def _unavailable(spec: ModelSpec, error: ServiceError) -> IndexEntry:
    return IndexEntry(spec.name, spec.version, ModelState.UNAVAILABLE, error.message)

"""What the front ends are told of the engine's models, and who knows it.

Every change is followed by a whole catalogue, one for all changes of a turn of the event loop. A model keeps its number
for as long as it is loaded. One that was replaced is found by its number until every front end has said that it will
ask nothing more of it; only then does the registry let it end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from service.buckets import DimSizes
from service.models import ModelSpec
from service.repository.catalogue import Catalogue
from service.repository.composed import ComposedModel, LoadedModel
from service.repository.served import ServedModel
from service.shared_regions.region import SharedRegion
from service.tensors import HostArray
from service.transport.objects import (
    PublishedCatalogue,
    PublishedComposition,
    PublishedModel,
    PublishedRegion,
    pack_object,
)
from service.transport.wire import Kind

MAX_SILENCE_S = 10.0
"""How long a front end that does not say what it knows is waited for."""

_log = logging.getLogger(__name__)


class Follower(Protocol):
    """A front end that follows the catalogue. On the event loop."""

    @property
    def known(self) -> int:
        """Serial number of the catalogue that it serves by; 0 before the first."""

    def publish(self, frame: bytes) -> None:
        """Sends it a catalogue."""


class Publisher:
    """An `Audience` that passes on what it is told to all front ends. On the event loop.

    Args:
        catalogue: the registry's.
        regions: tells what is registered of clients' shared memory.
        max_silence_s: seconds that an answer is waited for.
    """

    def __init__(
        self,
        catalogue: Catalogue[LoadedModel],
        *,
        regions: Callable[[], Sequence[SharedRegion]] = tuple,
        max_silence_s: float = MAX_SILENCE_S,
    ) -> None:
        self._catalogue = catalogue
        self._regions = regions
        self._max_silence_s = max_silence_s
        self._followers: list[Follower] = []
        self._loads: dict[int, LoadedModel] = {}
        self._numbers: dict[LoadedModel, int] = {}
        self._withdrawn: dict[int, int] = {}  # serial of the first catalogue without it, by number
        self._members: frozenset[int] = frozenset()
        self._last_number = 0
        self._serial = 0
        self._frame = b""
        self._is_stale = True
        self._has_heard = asyncio.Event()

    def find(self, number: int) -> LoadedModel | None:
        """The model of a number; None if no front end should ask for it any more."""
        return self._loads.get(number)

    def is_member(self, number: int) -> bool:
        """Whether something is composed of the model of that number."""
        return number in self._members

    def join(self, follower: Follower) -> None:
        """Tells a front end of everything, and of all changes until `leave`."""
        if self._is_stale:
            self._publish()
        self._followers.append(follower)
        follower.publish(self._frame)

    def leave(self, follower: Follower) -> None:
        """A front end is gone."""
        if follower in self._followers:
            self._followers.remove(follower)
        self.heard()

    def heard(self) -> None:
        """A front end has said what it knows."""
        self._has_heard.set()
        known = min((each.known for each in self._followers), default=self._serial)
        self._forget(known)

    def changed(self) -> None:
        """See `Audience`."""
        if not self._is_stale:
            self._is_stale = True
            asyncio.get_running_loop().call_soon(self._publish_if_stale)

    async def informed(self) -> None:
        """See `Audience`."""
        if self._is_stale:
            self._publish()
        serial = self._serial
        try:
            await asyncio.wait_for(self._until_known(serial), self._max_silence_s)
        except asyncio.TimeoutError:
            _log.warning(
                "a front end has not said within %g s that it serves what was loaded; it is not waited for any longer",
                self._max_silence_s,
            )
        self._forget(serial)

    async def _until_known(self, serial: int) -> None:
        while any(each.known < serial for each in self._followers):
            self._has_heard.clear()
            await self._has_heard.wait()

    def _publish_if_stale(self) -> None:
        if self._is_stale:
            self._publish()

    def _publish(self) -> None:
        self._is_stale = False
        self._serial += 1
        served = tuple(self._catalogue.models.values())
        for model in served:
            if model not in self._numbers:
                self._last_number += 1
                self._numbers[model], self._loads[self._last_number] = self._last_number, model
        for model, number in self._numbers.items():
            if self._catalogue.models.get(model.spec.name) is not model:
                self._withdrawn.setdefault(number, self._serial)
        self._frame = pack_object(Kind.CATALOGUE, self._published(served))
        for follower in self._followers:
            follower.publish(self._frame)

    def _published(self, served: Sequence[LoadedModel]) -> PublishedCatalogue:
        compositions = tuple(self._composition(model) for model in served if isinstance(model, ComposedModel))
        self._members = frozenset(number for each in compositions for number in each.members.values())
        return PublishedCatalogue(
            serial=self._serial,
            models=tuple(self._model(model) for model in served if isinstance(model, ServedModel)),
            compositions=compositions,
            unavailable=tuple(self._catalogue.unavailable.values()),
            is_complete=self._catalogue.is_complete,
            regions=tuple(map(published_region, self._regions())),
        )

    def _model(self, model: ServedModel) -> PublishedModel:
        return PublishedModel(
            number=self._numbers[model],
            spec=_portable(model.spec),
            costs=model.costs,
            lanes=model.batcher.lane_count,
        )

    def _composition(self, model: ComposedModel) -> PublishedComposition:
        numbers = {load.spec.name: number for load, number in self._numbers.items() if load in model.members.values()}
        members = {key: numbers[member.spec.name] for key, member in model.members.items()}
        return PublishedComposition(number=self._numbers[model], spec=model.spec, members=members)

    def _forget(self, known: int) -> None:
        """Lets go of what all who know a catalogue will not ask for."""
        for number in [number for number, serial in self._withdrawn.items() if serial <= known]:
            del self._withdrawn[number], self._numbers[self._loads.pop(number)]


def published_region(region: SharedRegion) -> PublishedRegion:
    """What front ends need to know of a region that this process has registered."""
    return PublishedRegion(spec=region.spec, identity=region.identity, pid=os.getpid(), fd=region.fd)


def _portable(spec: ModelSpec) -> ModelSpec:
    """A specification that another process can read: examples are functions, and made where models are warmed."""
    return spec if spec.media is None else replace(spec, media=replace(spec.media, example=_no_example))


def _no_example(rows: int, dims: DimSizes) -> tuple[tuple[HostArray, ...], ...]:
    raise AssertionError("a front end warms no model")

"""Which models serve: start-up, look-up, hot reload, unload and shut-down.

A reload warms the new version while the old one serves, then swaps them in one step of the event loop, then lets the
old one finish what it has taken. Looking a model up and submitting to it within one step never meets a closed one.
A model that is composed of others is swapped in the same step as they are, and they outlive the requests that it took.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from service.batching.lane_pool import is_lost
from service.errors import DeviceError, ModelLoadFailed, ModelNotFound, NotReady, ServiceError, ShuttingDown
from service.repository.card import load_card
from service.repository.catalogue import Audience, Catalogue, Nobody
from service.repository.composed import ComposedModel, LoadedModel
from service.repository.composition import Compositions, check_card, compose
from service.repository.layout import IMPLICIT_VERSION, ModelFolder, find, scan
from service.repository.loader import ModelLoader
from service.repository.served import IndexEntry, ModelState, ServedModel
from service.repository.start_up import OnProgress
from service.telemetry.recorder import Recorder
from service.units import NS_PER_S

_log = logging.getLogger(__name__)


class Registry:
    """The models of one repository. Owned by the event loop; the highest version of each model is served.

    Args:
        repository: the folder.
        loader: makes served models.
        recorder: told which versions are no longer served.
        drain_timeout_s: seconds that accepted requests get to finish when a model is replaced or unloaded.
        on_progress: told of every step of a load, on a worker thread.
        needs_all: whether a model that fails at start-up keeps the registry from becoming ready.
    """

    def __init__(
        self,
        repository: Path,
        loader: ModelLoader,
        recorder: Recorder,
        *,
        drain_timeout_s: float,
        on_progress: OnProgress,
        needs_all: bool = False,
    ) -> None:
        self._repository = repository
        self._needs_all = needs_all
        self._loader = loader
        self._recorder = recorder
        self._drain_timeout_s = drain_timeout_s
        self._on_progress = on_progress
        self._audience: Audience = Nobody()
        self._catalogue: Catalogue[LoadedModel] = Catalogue(self._changed)
        self._compositions = Compositions()
        self._locks: dict[str, asyncio.Lock] = {}
        self._retiring: dict[asyncio.Task[None], LoadedModel] = {}
        self._is_stopping = False
        self._loss: DeviceError | None = None
        self._has_lost = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether start-up is complete, shut-down has not begun and no device is lost."""
        return not self.unready_reason

    @property
    def has_lost_device(self) -> bool:
        """Whether a device is lost to the process."""
        return self._loss is not None

    @property
    def catalogue(self) -> Catalogue[LoadedModel]:
        """What serves, and what does not and why; for reading alone."""
        return self._catalogue

    @property
    def unready_reason(self) -> str:
        """Why the server is not ready; empty if it is."""
        if self._loss is not None:
            return f"its GPU is lost, and it ends now: {self._loss.message}"
        if self._is_stopping:
            return "it is shutting down"
        return "" if self._catalogue.is_complete else "its models are still loading"

    def tell(self, audience: Audience) -> None:
        """Lets somebody follow what serves, in place of whoever did before.

        From now on `load` and `unload` return once all know, and what was replaced ends only then.
        """
        self._audience = audience

    def get(self, name: str, version: str | None = None) -> LoadedModel:
        """The model to submit to.

        Raises:
            ModelNotFound: no such model or version in the repository.
            NotReady: it is in the repository, and loading, unloading or failed.
        """
        return self._catalogue.get(name, version)

    def versions(self, name: str) -> tuple[str, ...]:
        """The served versions of a model, ascending.

        Raises:
            ModelNotFound, NotReady: as `get`.
        """
        return (self.get(name).spec.version,)

    def served(self) -> tuple[LoadedModel, ...]:
        """All models that serve, by name."""
        return tuple(model for _, model in sorted(self._catalogue.models.items()))

    def index(self) -> tuple[IndexEntry, ...]:
        """Every version that serves, loads, or failed, by name.

        One that serves says which buckets it lacks and why, and whether loading it again failed.
        """
        entries = {(entry.name, entry.version): entry for entry in self._catalogue.unavailable.values()}
        for name, served in self._catalogue.models.items():
            failed = entries.get((name, served.spec.version))
            reasons = [f"loading it again failed: {failed.reason}"] if failed else []
            reasons += [served.lack] if served.lack else []
            version, reason = served.spec.version, "; ".join(reasons)
            entries[name, version] = IndexEntry(name, version, ModelState.READY, reason)
        return tuple(sorted(entries.values(), key=lambda entry: (entry.name, len(entry.version), entry.version)))

    async def start(self, names: Iterable[str] | None) -> dict[str, ServiceError]:
        """Loads `names`, or every model of the repository, and becomes ready; returns the models that failed.

        Where every model is needed, a failure leaves it as not ready as it was: the server is about to end.

        Raises:
            ModelLoadFailed: the repository cannot be read.
        """
        try:
            folders = await asyncio.to_thread(scan, self._repository)
        except ModelLoadFailed:
            if not self._needs_all:
                self._catalogue.complete()
            raise
        failures: dict[str, ServiceError] = {}
        wanted = _members_first(folders) if names is None else tuple(names)
        for name, folder in folders.items():
            if name not in self._catalogue.models and name not in self._catalogue.unavailable:
                reason = "waits for its turn to be loaded" if name in wanted else "not loaded"
                self._catalogue.explain(_entry(folder, ModelState.UNAVAILABLE, reason))
        for name in wanted:
            if name not in folders:
                failures[name] = ModelNotFound(
                    f"model '{name}' is not in '{self._repository}', which holds {sorted(folders)}"
                )
                continue
            try:
                await self.load(name)
            except ServiceError as error:
                failures[name] = error
            if self.has_lost_device:
                break
        if not (failures and self._needs_all):
            self._catalogue.complete()
        return failures

    async def load(self, name: str) -> None:
        """Loads a model from disk, or replaces the one that serves; the old one serves until the new one is warm.

        Those of its members that do not serve yet are loaded with a composed model.

        Raises:
            ModelNotFound: it is not in the repository.
            ModelLoadFailed: it cannot be served; if an old one serves, it goes on.
            ShuttingDown: the server stopped meanwhile.
        """
        await asyncio.to_thread(find, self._repository, name)  # so that a lock is kept for real names alone
        async with self._lock(name):
            folder = await asyncio.to_thread(find, self._repository, name)
            try:
                await (self._load_composed(folder) if folder.has_card_alone else self._load_latest(folder))
            except BaseException as error:
                reason = _reason(name, error)
                self._catalogue.explain(_entry(folder, ModelState.UNAVAILABLE, reason))
                if is_lost(error):
                    self.lose_device(error)
                if isinstance(error, ShuttingDown) or not isinstance(error, Exception):
                    raise
                raise ModelLoadFailed(f"failed to load '{name}': {reason}") from error
            await self._audience.informed()

    async def unload(self, name: str) -> None:
        """Stops serving a model after the requests that it has taken; an unknown or unloaded one is no error.

        Models that are composed of it stop as well, and serve again once it is loaded.

        Raises:
            NotReady: the device is lost; nothing that still uses it can be waited for, or be freed.
        """
        unloading = asyncio.create_task(self._unload(name))
        losing = asyncio.create_task(self._has_lost.wait())
        try:
            await asyncio.wait({unloading, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not unloading.done():
                raise NotReady(f"model '{name}' cannot be unloaded: {self.unready_reason}")
            await unloading
        finally:
            unloading.cancel()
            losing.cancel()

    async def _unload(self, name: str) -> None:
        if name not in self._catalogue.models and name not in self._catalogue.unavailable:
            return
        async with self._lock(name):
            self._compositions.cards.pop(name, None)
            served = self._catalogue.take(name)
            if served is None:
                return
            unloading = IndexEntry(name, served.spec.version, ModelState.UNLOADING, "unloading")
            self._catalogue.explain(unloading)
            self._recorder.forget(name, served.spec.version)
            retiring = self._begin_to_retire(served, self._recompose(name))
            retiring.add_done_callback(lambda _: self._unloaded(unloading))  # also where nobody waits for it any more
            await asyncio.shield(retiring)
            await self._audience.informed()

    def _unloaded(self, unloading: IndexEntry) -> None:
        """A model has ended; unless it was loaded anew meanwhile, that is what is told of it."""
        if self._catalogue.unavailable.get(unloading.name) is unloading:
            self._catalogue.explain(replace(unloading, state=ModelState.UNAVAILABLE, reason="unloaded"))

    def lose_device(self, error: DeviceError) -> None:
        """Turns not ready and ends every request of every model, for no lane can be relied on.

        On the event loop. Nothing is closed any more: a lost device may never answer.
        """
        if self._loss is None:
            self._loss = error
            self._has_lost.set()
            for served in (*self._catalogue.models.values(), *self._retiring.values()):
                if isinstance(served, ServedModel):
                    served.batcher.abandon(error)

    async def device_lost(self) -> DeviceError:
        """Waits until a device is lost; the process must end then. Tells of the first error alone."""
        await self._has_lost.wait()
        assert self._loss is not None, "the event follows the loss"
        return self._loss

    async def stop(self) -> None:
        """Takes no new requests, finishes the accepted ones within the drain timeout, and frees every model.

        Where a device is lost there is nothing to finish, and nothing that can be freed.
        """
        self._is_stopping = True
        if self.has_lost_device:
            return
        composed = [model for model in self._catalogue.models.values() if isinstance(model, ComposedModel)]
        ends = {id(model): self._begin_to_retire(model) for model in composed}
        for served in self._catalogue.models.values():
            if isinstance(served, ServedModel):
                users = [ends[id(model)] for model in composed if served in model.members.values()]
                self._begin_to_retire(served, users)
        await asyncio.gather(*self._retiring)
        for name in tuple(self._catalogue.models):
            self._catalogue.take(name)

    async def _load_latest(self, folder: ModelFolder) -> None:
        version = folder.version()
        if folder.name not in self._catalogue.models:
            self._catalogue.explain(_entry(folder, ModelState.LOADING, "loading"))
        self._refuse_if_lost()
        served = await self._loader.load(folder, version, self._on_progress, self.lose_device)
        self._refuse_if_lost()  # and free nothing of what was made
        if self._is_stopping:
            await self._begin_to_retire(served)
            raise ShuttingDown(f"the server stopped while model '{folder.name}' was loading")
        self._compositions.cards.pop(folder.name, None)
        _log.info("model '%s' version %s ready in %s", folder.name, version.version, _summary(served))
        self._swap_in(served)

    async def _load_composed(self, folder: ModelFolder) -> None:
        if folder.name not in self._catalogue.models:
            self._catalogue.explain(_entry(folder, ModelState.LOADING, "loading"))
        card = await asyncio.to_thread(load_card, folder.path)
        check_card(card, folder, await asyncio.to_thread(scan, self._repository))
        for member in card.members.values():
            if member not in self._catalogue.models:
                await self.load(member)
        self._refuse_if_lost()
        if self._is_stopping:
            raise ShuttingDown(f"the server stopped while model '{folder.name}' was loading")
        composed = compose(card, self._catalogue.models, self._loader)
        self._compositions.cards[card.name] = card
        _log.info("model '%s' ready, composed of %s", card.name, ", ".join(card.members.values()))
        self._swap_in(composed)

    def _swap_in(self, served: LoadedModel) -> None:
        """Serves a model from now on, in place of the one of its name; what is composed of it moves to it at once."""
        name, old = served.spec.name, self._catalogue.models.get(served.spec.name)
        self._catalogue.put(served)
        users = self._recompose(name)
        if old is not None:
            if old.spec.version != served.spec.version:
                self._recorder.forget(name, old.spec.version)
            self._begin_to_retire(old, users)

    def _recompose(self, member: str) -> list[asyncio.Task[None]]:
        """Makes what is composed of `member` anew, of what serves now; returns the retirements of the former ones."""
        retirements = []
        for card in self._compositions.of_member(member):
            old = self._catalogue.take(card.name)
            try:
                self._catalogue.put(compose(card, self._catalogue.models, self._loader))
            except ModelLoadFailed as error:
                self._catalogue.explain(IndexEntry(card.name, IMPLICIT_VERSION, ModelState.UNAVAILABLE, error.message))
                self._recorder.forget(card.name, IMPLICIT_VERSION)
            if old is not None:
                retirements.append(self._begin_to_retire(old))
        return retirements

    def _begin_to_retire(self, served: LoadedModel, users: Sequence[asyncio.Task[None]] = ()) -> asyncio.Task[None]:
        """A task of its own, which `stop` awaits: it must end even if whoever began it is cancelled.

        Args:
            served: what serves no more.
            users: retirements of what is composed of it, for which it still works.
        """
        task = asyncio.create_task(self._retire(served, users))
        self._retiring[task] = served
        task.add_done_callback(self._retiring.pop)
        return task

    async def _retire(self, served: LoadedModel, users: Sequence[asyncio.Task[None]]) -> None:
        await self._audience.informed()
        if isinstance(served, ComposedModel):
            await served.in_flight.drain(self._drain_timeout_s)
            return
        began_s = asyncio.get_running_loop().time()
        if users:
            await asyncio.wait(users)
        used_s = asyncio.get_running_loop().time() - began_s
        await served.batcher.drain(max(0.0, self._drain_timeout_s - used_s))
        if not self.has_lost_device:
            try:
                await asyncio.to_thread(served.batcher.close)
            except DeviceError as error:
                self.lose_device(error)

    def _changed(self) -> None:
        self._audience.changed()

    def _refuse_if_lost(self) -> None:
        if self.has_lost_device:
            raise ModelLoadFailed(self.unready_reason)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


def _members_first(folders: Mapping[str, ModelFolder]) -> list[str]:
    """Names in the order of loading: what is composed of others comes after everything else."""
    return sorted(folders, key=lambda name: (folders[name].has_card_alone, name))


def _summary(served: ServedModel) -> str:
    """Such as "3.2 s: open 1.1, warm up 1.6, checks 0.4, lanes 0.1; 28 buckets, 2 lanes"."""
    phases = ", ".join(f"{phase.value.replace('_', ' ')} {ns / NS_PER_S:.1f}" for phase, ns in served.phase_ns.items())
    warm = sum(1 for _ in served.spec.buckets.known())
    total_s = sum(served.phase_ns.values()) / NS_PER_S
    lanes = served.batcher.lane_count
    return f"{total_s:.1f} s: {phases}; {_count(warm, 'bucket')}, {_count(lanes, 'lane')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _entry(folder: ModelFolder, state: ModelState, reason: str) -> IndexEntry:
    version = IMPLICIT_VERSION if folder.has_card_alone else ""
    if folder.versions:
        version = folder.versions[-1].version
    return IndexEntry(folder.name, version, state, reason)


def _reason(name: str, error: BaseException) -> str:
    if isinstance(error, ServiceError):
        return error.message
    if isinstance(error, asyncio.CancelledError):
        return "its loading was cut off"
    _log.error("loading model '%s' failed unexpectedly", name, exc_info=error)
    return "unexpected error; the server's log has the cause"

"""From a folder to a warm model: card, backend, lanes, every bucket, and the proof that batching changes no row."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from service.batching.batcher import Batcher, OnDeviceLost
from service.batching.lane_pool import is_lost
from service.cards import ModelCard
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.card import load_card
from service.repository.composed import ComposedModel, InFlight, composed_spec
from service.repository.layout import ModelFolder, VersionFolder
from service.repository.served import ServedModel
from service.repository.start_up import OnProgress, Ready, StartUp
from service.requests import Clock
from service.runtime.golden import Reference
from service.runtime.protocol import Backend
from service.telemetry.recorder import ModelGauges, Recorder

OpenBackend: TypeAlias = Callable[[ModelCard, VersionFolder, threading.Event], Backend]
"""Opens the backend that a card asks for; blocking. Raises ModelLoadFailed or CardError.

The event is set when nobody waits for the load any more: what takes long, as building a plan does, ends then.
"""

MakeTask: TypeAlias = Callable[[ModelSpec], Task | None]
"""Makes what `/predict` does with a model. Raises ModelLoadFailed where the model does not fit its task.

Called before a model is warmed; and again, with the buckets that are served, where start-up left some out.
"""

ComposeTask: TypeAlias = Callable[[ModelSpec, Mapping[str, ModelSpec]], Task]
"""Makes the task of a composed model, given its members by the card's key. Raises ModelLoadFailed likewise."""

OpenModelReference: TypeAlias = Callable[[Backend], Reference | None]
"""Opens what an opened model's buckets are compared with, or gives None where there is nothing; blocking."""


@dataclass(frozen=True, slots=True)
class _Opening:
    folder: ModelFolder
    version: VersionFolder
    on_progress: OnProgress
    on_device_lost: OnDeviceLost


@dataclass(frozen=True, slots=True)
class _Prepared:
    batcher: Batcher
    ready: Ready
    task: Task | None


class ModelLoader:
    """Makes served models. Knows backends and tasks only through the functions that it is given."""

    def __init__(
        self,
        *,
        open_backend: OpenBackend,
        make_task: MakeTask,
        recorder: Recorder,
        open_reference: OpenModelReference = lambda backend: None,
        compose_task: ComposeTask | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._open_backend = open_backend
        self._make_task = make_task
        self._recorder = recorder
        self._open_reference = open_reference
        self._compose_task = compose_task
        self._clock = clock
        self._on_opened: Callable[[Backend], None] = lambda backend: None

    def tell(self, on_opened: Callable[[Backend], None]) -> None:
        """From now on `on_opened` is told of every backend before it is warmed, on the thread that opened it."""
        self._on_opened = on_opened

    def compose(self, card: ModelCard, members: Mapping[str, ServedModel]) -> ComposedModel:
        """Makes a composed model of members that serve; at once, for nothing is opened or warmed.

        Args:
            card: its card.
            members: by the card's key.

        Raises:
            ModelLoadFailed: the members do not fit the task.
        """
        spec = composed_spec(card)
        if self._compose_task is None:
            raise ModelLoadFailed(f"model '{card.name}' is composed of others, which is not possible here")
        task = self._compose_task(spec, {key: member.spec for key, member in members.items()})
        in_flight = InFlight(card.batching.max_queued_requests)
        gauges = ModelGauges(
            queued_requests=int,
            queued_bytes=int,
            in_flight_requests=lambda: in_flight.count,
            lanes=int,
            busy_lanes=int,
        )
        recorder = self._recorder.for_model(spec.name, spec.version, gauges)
        return ComposedModel(spec, recorder, task, MappingProxyType(dict(members)), in_flight)

    async def load(
        self, folder: ModelFolder, version: VersionFolder, on_progress: OnProgress, on_device_lost: OnDeviceLost
    ) -> ServedModel:
        """Loads one version; the work runs on a worker thread, requests are taken once this returns.

        Args:
            folder: the model's.
            version: which of its versions.
            on_progress: told of each step, on the worker thread.
            on_device_lost: told, on the event loop and once the model serves, that its device is lost.

        Raises:
            CardError, ModelLoadFailed, ExecutionFailed: it cannot be served; everything that was opened is closed
                again, as it is if the load is cancelled, which takes until the bucket in hand is warm.
            DeviceError: likewise; but where the device is lost nothing is closed, for that may hang.
        """
        is_cut_off = threading.Event()
        opening = _Opening(folder, version, on_progress, on_device_lost)
        work = asyncio.to_thread(self._prepare, opening, is_cut_off)
        preparing = asyncio.ensure_future(work)
        try:
            prepared = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            is_cut_off.set()
            await _close_unused(preparing)
            raise
        batcher, ready, spec = prepared.batcher, prepared.ready, prepared.ready.spec
        recorder = self._recorder.for_model(spec.name, spec.version, _gauges(batcher, ready))
        batcher.start(ready.costs, recorder, ready.unserved)
        return ServedModel(
            spec=spec,
            batcher=batcher,
            recorder=recorder,
            task=prepared.task,
            costs=ready.costs,
            unserved=ready.unserved,
            phase_ns=ready.phase_ns,
        )

    def _prepare(self, opening: _Opening, is_cut_off: threading.Event) -> _Prepared:
        began_ns = self._clock()
        backend = self._open_backend(load_card(opening.folder.path), opening.version, is_cut_off)
        batcher = Batcher(backend, on_device_lost=opening.on_device_lost)
        try:
            self._on_opened(backend)
            task = self._make_task(backend.spec)
            start_up = StartUp(
                backend,
                batcher.pool,
                open_reference=lambda: self._open_reference(backend),
                on_progress=opening.on_progress,
                is_cut_off=is_cut_off,
                clock=self._clock,
            )
            ready = start_up.run(began_ns)
            if ready.spec is not backend.spec:
                task = self._make_task(ready.spec)
        except BaseException as error:
            if not is_lost(error):
                batcher.close()
            raise
        return _Prepared(batcher, ready, task)


async def _close_unused(preparing: asyncio.Future[_Prepared]) -> None:
    """A thread cannot be interrupted: what it still made is closed when it comes back."""
    await asyncio.wait([preparing])
    if preparing.exception() is None:
        await asyncio.to_thread(preparing.result().batcher.close)


def _gauges(batcher: Batcher, ready: Ready) -> ModelGauges:
    return ModelGauges(
        queued_requests=lambda: batcher.queued_requests,
        queued_bytes=lambda: batcher.queued_bytes,
        in_flight_requests=lambda: batcher.queued_requests + batcher.dispatched_requests,
        lanes=lambda: batcher.lane_count,
        busy_lanes=lambda: batcher.busy_lanes,
        lane_figures=batcher.pool.figures,
        weights_bytes=lambda: batcher.pool.weights_bytes,
        unserved=ready.unserved,
        startup_ns={phase.value: duration_ns for phase, duration_ns in ready.phase_ns.items()},
    )

"""From a folder to a warm model: card, backend, lanes, every bucket, and the proof that batching changes no row."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from service.batching.batcher import Batcher, OnDeviceLost, is_lost
from service.buckets import Bucket, CostTable
from service.cards import ModelCard
from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.card import load_card
from service.repository.layout import ModelFolder, VersionFolder
from service.repository.served import ServedModel
from service.runtime.protocol import Backend, Lane
from service.runtime.warm_up import check_batch_invariance, warm_up
from service.telemetry.recorder import ModelGauges, Recorder

OpenBackend: TypeAlias = Callable[[ModelCard, VersionFolder, threading.Event], Backend]
"""Opens the backend that a card asks for; blocking. Raises ModelLoadFailed or CardError.

The event is set when nobody waits for the load any more: what takes long, as building a plan does, ends then.
"""

MakeTask: TypeAlias = Callable[[ModelSpec], Task | None]
"""Makes what `/predict` does with a model. Raises ModelLoadFailed where the model does not fit its task."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a model has come.

    Attributes:
        model: its name.
        done: buckets that are warm, over all lanes.
        total: buckets to warm, over all lanes.
        bucket: the bucket that became warm; None when the warming begins, and once more when it is over or failed.
    """

    model: str
    done: int
    total: int
    bucket: Bucket | None


OnProgress: TypeAlias = Callable[[LoadProgress], None]
"""Told of each step, on a worker thread."""


class _CutOff(Exception):
    """Ends a load that nobody waits for any more."""


@dataclass(frozen=True, slots=True)
class _Opening:
    folder: ModelFolder
    version: VersionFolder
    on_progress: OnProgress
    on_device_lost: OnDeviceLost


@dataclass(frozen=True, slots=True)
class _Prepared:
    batcher: Batcher
    spec: ModelSpec
    costs: CostTable
    task: Task | None


class ModelLoader:
    """Makes served models. Knows backends and tasks only through the functions that it is given."""

    def __init__(self, *, open_backend: OpenBackend, make_task: MakeTask, recorder: Recorder) -> None:
        self._open_backend = open_backend
        self._make_task = make_task
        self._recorder = recorder

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
        batcher, spec = prepared.batcher, prepared.spec
        recorder = self._recorder.for_model(spec.name, spec.version, _gauges(batcher))
        batcher.start(prepared.costs, recorder)
        return ServedModel(spec, prepared.costs, batcher, recorder, prepared.task)

    def _prepare(self, opening: _Opening, is_cut_off: threading.Event) -> _Prepared:
        backend = self._open_backend(load_card(opening.folder.path), opening.version, is_cut_off)
        batcher = Batcher(backend, on_device_lost=opening.on_device_lost)
        try:
            task = self._make_task(backend.spec)
            batcher.pool.start()
            costs = self._warm_up(batcher, backend.spec, opening.on_progress, is_cut_off)
        except BaseException as error:
            if not is_lost(error):
                batcher.close()
            raise
        return _Prepared(batcher, backend.spec, costs, task)

    def _warm_up(
        self, batcher: Batcher, spec: ModelSpec, on_progress: OnProgress, is_cut_off: threading.Event
    ) -> CostTable:
        """Warms every lane by itself, so that the costs of the first are not disturbed by the others."""
        total = len(batcher.pool) * sum(1 for _ in spec.buckets.known())
        done = 0

        def on_bucket(bucket: Bucket) -> None:
            nonlocal done
            if is_cut_off.is_set():
                raise _CutOff
            done += 1
            on_progress(LoadProgress(spec.name, done, total, bucket))

        def prepare(lane: Lane) -> CostTable:
            costs = warm_up(lane, spec, on_bucket)
            check_batch_invariance(lane, spec)
            return costs

        on_progress(LoadProgress(spec.name, 0, total, None))
        try:
            return batcher.pool.call_each(prepare)[0]
        finally:
            on_progress(LoadProgress(spec.name, done, total, None))


async def _close_unused(preparing: asyncio.Future[_Prepared]) -> None:
    """A thread cannot be interrupted: what it still made is closed when it comes back."""
    await asyncio.wait([preparing])
    if preparing.exception() is None:
        await asyncio.to_thread(preparing.result().batcher.close)


def _gauges(batcher: Batcher) -> ModelGauges:
    return ModelGauges(
        queued_requests=lambda: batcher.queued_requests,
        queued_bytes=lambda: batcher.queued_bytes,
        in_flight_requests=lambda: batcher.queued_requests + batcher.dispatched_requests,
        lanes=lambda: batcher.lane_count,
        busy_lanes=lambda: batcher.busy_lanes,
        lane_figures=batcher.pool.figures,
        weights_bytes=lambda: batcher.pool.weights_bytes,
    )

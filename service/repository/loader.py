"""From a folder to a warm model: card, backend, lanes, every bucket, and the proof that batching changes no row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from service.batching.batcher import Batcher
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

OpenBackend: TypeAlias = Callable[[ModelCard, VersionFolder], Backend]
"""Opens the backend that a card asks for; blocking. Raises ModelLoadFailed or CardError."""

MakeTask: TypeAlias = Callable[[ModelSpec], Task | None]
"""Makes what `/predict` does with a model. Raises ModelLoadFailed where the model does not fit its task."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a model has come.

    Attributes:
        model: its name.
        done: buckets that are warm, over all lanes.
        total: buckets to warm, over all lanes.
        bucket: the bucket that became warm, or None when the warming begins.
    """

    model: str
    done: int
    total: int
    bucket: Bucket | None


OnProgress: TypeAlias = Callable[[LoadProgress], None]
"""Told of each step, on a worker thread."""


class ModelLoader:
    """Makes served models. Knows backends and tasks only through the functions that it is given."""

    def __init__(self, *, open_backend: OpenBackend, make_task: MakeTask, recorder: Recorder) -> None:
        self._open_backend = open_backend
        self._make_task = make_task
        self._recorder = recorder

    async def load(self, folder: ModelFolder, version: VersionFolder, on_progress: OnProgress) -> ServedModel:
        """Loads one version; the work runs on a worker thread, requests are taken once this returns.

        Raises:
            CardError, ModelLoadFailed: it cannot be served; everything that was opened is closed again.
        """
        batcher, spec, costs, task = await asyncio.to_thread(self._prepare, folder, version, on_progress)
        recorder = self._recorder.for_model(spec.name, spec.version, _gauges(batcher))
        batcher.start(costs, recorder)
        return ServedModel(spec, costs, batcher, recorder, task)

    def _prepare(
        self, folder: ModelFolder, version: VersionFolder, on_progress: OnProgress
    ) -> tuple[Batcher, ModelSpec, CostTable, Task | None]:
        backend = self._open_backend(load_card(folder.path), version)
        batcher = Batcher(backend)
        try:
            task = self._make_task(backend.spec)
            batcher.pool.start()
            costs = self._warm_up(batcher, backend.spec, on_progress)
        except BaseException:
            batcher.close()
            raise
        return batcher, backend.spec, costs, task

    def _warm_up(self, batcher: Batcher, spec: ModelSpec, on_progress: OnProgress) -> CostTable:
        """Warms every lane by itself, so that the costs of the first are not disturbed by the others."""
        total = len(batcher.pool) * sum(1 for _ in spec.buckets.known())
        done = 0

        def on_bucket(bucket: Bucket) -> None:
            nonlocal done
            done += 1
            on_progress(LoadProgress(spec.name, done, total, bucket))

        def prepare(lane: Lane) -> CostTable:
            costs = warm_up(lane, spec, on_bucket)
            check_batch_invariance(lane, spec)
            return costs

        on_progress(LoadProgress(spec.name, 0, total, None))
        return batcher.pool.call_each(prepare)[0]


def _gauges(batcher: Batcher) -> ModelGauges:
    return ModelGauges(
        queued_requests=lambda: batcher.queued_requests,
        queued_bytes=lambda: batcher.queued_bytes,
        in_flight_requests=lambda: batcher.queued_requests + batcher.dispatched_requests,
        lanes=lambda: batcher.lane_count,
        busy_lanes=lambda: batcher.busy_lanes,
    )

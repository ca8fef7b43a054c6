"""A model version with tensors of its own, as its requests see it: what it takes, where they go, what comes of them."""

from __future__ import annotations

from dataclasses import dataclass

from service.batching.submitter import Submitter
from service.models import ModelSpec
from service.pipeline.task import Task
from service.telemetry.activity import Activity
from service.telemetry.recorder import ModelRecorder


@dataclass(frozen=True, slots=True, eq=False)
class PlainModel:
    """A model version that takes requests, wherever its lanes are.

    Attributes:
        spec: its tensors, limits, and the buckets that are served.
        batcher: takes its requests.
        recorder: counts them.
        task: what `/predict` makes of it; None serves raw tensors only.
    """

    spec: ModelSpec
    batcher: Submitter
    recorder: ModelRecorder
    task: Task | None

    @property
    def activity(self) -> Activity:
        """What a diagnosis wants to know of its requests."""
        return self.batcher.activity

"""A model version that serves requests, and the states that a version can be in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from service.batching.batcher import Batcher
from service.buckets import CostTable
from service.models import ModelSpec
from service.pipeline.task import Task
from service.telemetry.recorder import ModelRecorder


class ModelState(Enum):
    """States of a model version; the value is the word of the repository index."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the repository index; `reason` says why the version is not ready, where there is something to say."""

    name: str
    version: str
    state: ModelState
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model version with warm lanes.

    Attributes:
        spec: its tensors, buckets and limits.
        costs: what a batch costs in each bucket, as measured at warm-up.
        batcher: takes its requests.
        recorder: counts them.
        task: what `/predict` makes of it; None serves raw tensors only.
    """

    spec: ModelSpec
    costs: CostTable
    batcher: Batcher
    recorder: ModelRecorder
    task: Task | None

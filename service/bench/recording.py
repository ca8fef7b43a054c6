"""What a run of `inferlane bench` leaves behind, to be compared with another: times by place and round, and an origin.

A *round* is one visit to a bucket. A run visits every bucket once per round, so the rounds of a place lie spread over
the whole run, and what disturbs the machine for a while disturbs one round of every place. Samples within a round
resemble each other more than those of two rounds; that is why the round, and not the batch, is the unit of comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Rounds: TypeAlias = tuple[tuple[float, ...], ...]
"""Nanoseconds per batch: samples by round; no round is empty, no sample is 0 or less."""

LEAST_NS = 1.0
"""Where the clock sees no time at all, it took less than the clock can tell."""

STEP = "step"
BATCH = "batch"


class PlaceKind(Enum):
    """What a series of times is of."""

    STAGE = "stage"
    """A stage of a batch in a lane; `batch` is all of them, `step` the time between two batches: 1 / throughput."""
    LAYER = "layer"
    """A layer of the model, under its profiler."""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose times a series has.

    Attributes:
        bucket: its label, such as `8x128`; empty for what belongs to none.
        kind: stage or layer.
        name: of the stage or the layer.
    """

    bucket: str
    kind: PlaceKind
    name: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.bucket, self.kind.value, self.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a recording comes from.

    Attributes:
        model: its name and version, such as `resnet50/1`.
        machine: what makes times comparable: processor, cores, threads, GPU; by name.
        versions: of what runs the model, by package.
        digests: SHA-256 of the card and of the model's files, by file name.
        load: how the lanes were driven: their number, rows per request and the like.
    """

    model: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    digests: Mapping[str, str]
    load: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recording:
    """The times of one run; `origin` is None where a file of another tool does not tell it."""

    series: Mapping[Place, Rounds]
    origin: Origin | None = None

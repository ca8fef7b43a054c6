"""What an experiment may use, and what it gives back.

An experiment is a generator. It runs on a thread of its own, which owns everything that it opens; wherever it yields,
it has just finished a round, and whoever drives it may wait, or end it: sent False, it makes its results of the rounds
so far; closed, it frees what it holds and makes none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar

from service.buckets import Bucket, CostTable, Form
from service.models import ModelSpec
from service.requests import Clock
from service.runtime.probe import LaunchTimes, Probe
from service.runtime.protocol import Backend
from service.telemetry.snapshot_device import LayerProfile
from service.telemetry.snapshot_probes import Peaks, ProbeFigures

T = TypeVar("T")

ROUNDS = 30
"""Of each comparison at most."""

ROUND_NS = 10_000_000
"""How long one side of a round is run, unless a single launch takes longer."""

MAX_LAUNCHES = 200
"""In one side of a round: more of them would fill the driver's queue, and the next launch would wait."""


@dataclass(frozen=True, slots=True)
class Results:
    """What experiments found.

    Attributes:
        figures: those that they measured; the others are absent.
        layers: of the buckets that were profiled.
    """

    figures: ProbeFigures = field(default_factory=ProbeFigures)
    layers: tuple[LayerProfile, ...] = ()

    def updated(self, newer: Results) -> Results:
        """Both, the newer one's figure where both have one; of figures by bucket, bucket by bucket."""
        layers = {profile.bucket: profile for profile in (*self.layers, *newer.layers)}
        return Results(_updated(self.figures, newer.figures), tuple(layers.values()))


Rounds: TypeAlias = Generator[None, bool, Results]


class NotHere(Exception):
    """An experiment makes no sense with this model or on this machine; the message says why."""


class CodecTrial(Protocol):
    """Parses a request and renders its answer as the routes do."""

    def run(self, *, is_binary: bool) -> None:
        """Once, on the calling thread."""


class Load(Protocol):
    """Requests made by the server itself; blocking, on the experiment's thread."""

    def direct_rows_per_s(self, duration_s: float) -> float:
        """Rows that were answered per second, where requests are given to the queue."""

    def http_rows_per_s(self, duration_s: float) -> float:
        """Likewise where another process sends them to the server's own address.

        Raises:
            ExecutionFailed: that process failed, or was answered otherwise.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What experiments need beside the backend; given by those who know routes and machines.

    Attributes:
        peaks: measures what the machine that runs a backend does at best; blocking.
        codec: makes what is timed for the codecs; None for a model whose tensors no synthetic request has.
        load: makes requests.
        rest: waits so many seconds, less where the run is to end.
        clock: nanoseconds that only grow.
    """

    peaks: Callable[[Backend], Peaks]
    codec: Callable[[], CodecTrial | None]
    load: Load
    rest: Callable[[float], None] = time.sleep
    clock: Clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One model, while it serves.

    Attributes:
        backend: opened; it outlives the experiments.
        spec: the model as it is served.
        costs: of a batch, by bucket, as its first lane took it alone.
        lanes: that serve it.
        lane_bytes: device memory of one of them.
        buckets: where the traffic is, the busiest first; where there is none, small and large ones.
        tools: everything else.
    """

    backend: Backend
    spec: ModelSpec
    costs: CostTable
    lanes: int
    lane_bytes: int
    buckets: tuple[Bucket, ...]
    tools: Tools

    @property
    def fullest(self) -> Bucket:
        """Of the buckets in which the busiest one's requests could run, that of most rows per second."""
        home = self.buckets[0].home
        sizes = self.spec.buckets.sizes_at(home)
        return min(
            (Bucket(size, *home) for size in sizes), key=lambda bucket: self.costs.cost_ns(bucket) / bucket.padded_size
        )

    def buckets_of(self, form: Form) -> tuple[Bucket, ...]:
        """Those of `buckets` that are of a form."""
        return tuple(bucket for bucket in self.buckets if bucket.form is form)

    @property
    def is_on_device(self) -> bool:
        """Whether a device with memory of its own runs the model."""
        return self.backend.free_device_bytes() is not None

    def require_device(self) -> None:
        """Refuses what makes no sense on the CPU.

        Raises:
            NotHere: there is no device.
        """
        if not self.is_on_device:
            raise NotHere("the model runs on the CPU: there is no device whose launches and copies could be timed")

    def probe(self, bucket: Bucket, *, profile: int | None = None) -> Probe:
        """A bucket on the device, by itself; owned by the calling thread.

        Raises:
            NotHere: there is no device.
            ModelLoadFailed, ExecutionFailed, DeviceError: as `Backend.create_probe`.
        """
        self.require_device()
        probe = self.backend.create_probe(bucket, profile=profile)
        assert probe is not None, "a backend on a device makes probes"
        return probe

    def has_room(self, lanes: int) -> bool:
        """Whether so many lanes more would take less than half of the device's memory that is left."""
        free_bytes = self.backend.free_device_bytes()
        return free_bytes is None or 2 * lanes * self.lane_bytes <= free_bytes


def launches_in_round(times: LaunchTimes) -> int:
    """So many launches that one side of a round lasts about `ROUND_NS`."""
    return max(1, min(MAX_LAUNCHES, round(ROUND_NS / max(1.0, times.device_ns, times.host_ns))))


def in_turns(number: int, sides: Sequence[Callable[[], T]]) -> list[T]:
    """Runs all sides of round `number`, whose order is reversed in every other one; gives results in their own order.

    So no side always comes first, and what drifts reaches all alike.
    """
    order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
    found = {index: sides[index]() for index in order}
    return [found[index] for index in range(len(sides))]


def _updated(older: ProbeFigures, newer: ProbeFigures) -> ProbeFigures:
    changes: dict[str, Any] = {}
    for each in fields(ProbeFigures):
        before, after = getattr(older, each.name), getattr(newer, each.name)
        if isinstance(after, Mapping):
            changes[each.name] = MappingProxyType({**before, **after})
        elif after is not None:
            changes[each.name] = after
    return replace(older, **changes)

"""What was counted, second by second: any two moments of the last minutes make a window.

Promises: a moment is taken on the event loop in well below a millisecond per model that was busy; no more than the
given number of seconds is kept, and moments between which nothing happened share their memory. A window never reaches
across a reload of its model, and leaves out exclusive experiments (`quiet.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from service.buckets import Bucket
from service.errors import ModelNotFound, NotReady
from service.requests import Clock
from service.telemetry.activity import Activity, ActivityMarks, OccupancyMarks
from service.telemetry.figures import ModelFigures
from service.telemetry.front_ends import FrontEndMoment
from service.telemetry.gpu_figures import GpuFigures
from service.telemetry.histogram import Histograms
from service.telemetry.host_counters import HostCounters, own_run_delay_ns
from service.telemetry.quiet import quiet_range
from service.telemetry.snapshot import ModelFacts
from service.units import NS_PER_S

INTERVAL_S = 1.0

NO_EXPERIMENTS = OccupancyMarks(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSource:
    """A model that serves, as the history watches it.

    Attributes:
        facts: what its card and plan say.
        activity: what its batcher and routes note; another one after a reload.
        figures: everything recorded so far; None where nothing is.
        costs_s: cost table of warm-up, seconds per batch.
        ready_ns: when it became ready.
        lanes: of the model.
        lane_depth: batches that a lane may hold at once.
        profiles: the optimization profile that runs each bucket; empty where there are none.
    """

    facts: ModelFacts
    activity: Activity
    figures: Callable[[], ModelFigures | None]
    costs_s: Mapping[Bucket, float]
    ready_ns: int
    lanes: int
    lane_depth: int
    profiles: Mapping[Bucket, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, eq=False)
class ModelMoment:
    """What was counted of one model up to a moment.

    Attributes:
        source: the model.
        marks: of its activity.
        figures: of its recorder, without gauges.
    """

    source: ModelSource
    marks: ActivityMarks
    figures: ModelFigures


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """What was counted up to a moment.

    Attributes:
        at_ns: on the monotonic clock.
        unix_ns: on the clock on the wall.
        loop_cpu_ns: CPU time of the event loop's thread.
        loop_lag: lateness of its timer, in nanoseconds.
        host: of the machine; None before the first look at it.
        gpus: as sampled last.
        models: by name.
        experiments: exclusive runs of probes, on whichever model.
        front_ends: those in processes of their own, which are connected; empty where there are none.
        loop_delay_ns: time in which the event loop's thread could run and had no processor; None if not known.
    """

    at_ns: int
    unix_ns: int
    loop_cpu_ns: int
    loop_lag: Histograms
    host: HostCounters | None
    gpus: tuple[GpuFigures, ...]
    models: Mapping[str, ModelMoment]
    experiments: OccupancyMarks = NO_EXPERIMENTS
    front_ends: tuple[FrontEndMoment, ...] = ()
    loop_delay_ns: int | None = None

    @property
    def rows(self) -> int:
        """Answered rows of all models."""
        return sum(model.figures.requests.rows for model in self.models.values())


@dataclass(frozen=True, slots=True)
class Span:
    """The moments of one window of one model, at least two, in their order.

    Attributes:
        model: its name.
        moments: each has the model, in the same load.
    """

    model: str
    moments: tuple[Moment, ...]

    @property
    def first(self) -> Moment:
        """Where the window begins."""
        return self.moments[0]

    @property
    def last(self) -> Moment:
        """Where it ends."""
        return self.moments[-1]

    @property
    def duration_s(self) -> float:
        """Its length by the monotonic clock."""
        return (self.last.at_ns - self.first.at_ns) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Senses:
    """Where a history looks, beside the models.

    Attributes:
        loop_lag: lateness of the event loop's timer so far.
        host: the latest counters of the machine.
        gpus: the latest figures of the GPUs that models use.
        experiments: exclusive runs of probes until a moment of the clock.
        front_ends: in processes of their own, each as it is now.
        clock: monotonic nanoseconds.
        clock_unix_ns: nanoseconds since 1970.
        loop_cpu_ns: CPU time of the calling thread.
        loop_delay_ns: time in which it could run and had no processor; None if not known.
    """

    loop_lag: Callable[[], Histograms]
    host: Callable[[], HostCounters | None] = lambda: None
    gpus: Callable[[], tuple[GpuFigures, ...]] = tuple
    experiments: Callable[[int], OccupancyMarks] = lambda _: NO_EXPERIMENTS
    front_ends: Callable[[], tuple[FrontEndMoment, ...]] = tuple
    clock: Clock = time.monotonic_ns
    clock_unix_ns: Clock = time.time_ns
    loop_cpu_ns: Clock = time.thread_time_ns
    loop_delay_ns: Callable[[], int | None] = own_run_delay_ns


class History:
    """Takes a moment every second. Belongs to the event loop.

    Args:
        sources: the models that serve now.
        senses: where to look beside them.
        length_s: seconds that are kept.
    """

    def __init__(self, sources: Callable[[], Sequence[ModelSource]], senses: Senses, *, length_s: int) -> None:
        self._sources = sources
        self._senses = senses
        self._moments: deque[Moment] = deque(maxlen=length_s + 1)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to take moments on the running event loop."""
        self._tick(asyncio.get_running_loop())

    def stop(self) -> None:
        """Takes no more; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def now(self) -> Moment:
        """The present moment, which is not kept."""
        senses = self._senses
        at_ns, unix_ns = senses.clock(), senses.clock_unix_ns()  # side by side, or the one would seem to be set
        models: dict[str, ModelMoment] = {}
        for source in self._sources():
            figures = source.figures()
            if figures is not None:
                # What asks for a model's state would keep an unloaded one alive.
                kept = replace(figures, gauges=None)
                models[source.facts.name] = ModelMoment(source, source.activity.marks(at_ns), kept)
        return Moment(
            at_ns=at_ns,
            unix_ns=unix_ns,
            loop_cpu_ns=senses.loop_cpu_ns(),
            loop_lag=senses.loop_lag(),
            host=senses.host(),
            gpus=senses.gpus(),
            models=MappingProxyType(models),
            experiments=senses.experiments(at_ns),
            front_ends=senses.front_ends(),
            loop_delay_ns=senses.loop_delay_ns(),
        )

    def keep(self) -> None:
        """Takes a moment and keeps it."""
        self._moments.append(self.now())

    def span(self, model: str | None, duration_s: float) -> Span:
        """The window that ends now, or before an exclusive run of probes that ended only just, or has not yet.

        Args:
            model: a model's name; None for the one on whose batches most time was spent lately.
            duration_s: how long it is at most; it is as long as there are moments.

        Raises:
            ModelNotFound: no such model is watched.
            NotReady: it has been for less than a second.
        """
        now = self.now()
        since_ns = now.at_ns - int(duration_s * NS_PER_S)
        kept = [moment for moment in self._moments if moment.at_ns >= since_ns]
        name = model if model is not None else _busiest(kept, now)
        if name not in now.models:
            raise ModelNotFound(
                f"no model '{name}' is watched, there are: {', '.join(sorted(now.models)) or 'none'}; a model that is "
                "composed of others has no batches of its own: ask for those"
            )
        activity = now.models[name].source.activity
        same = [
            moment
            for moment in self._moments
            if name in moment.models and moment.models[name].source.activity is activity
        ]
        whole = (*same, now)
        chosen = quiet_range(whole, duration_s)
        if len(chosen) < 2:
            raise NotReady(
                f"model '{name}' has been watched for less than {INTERVAL_S:.0f} s; ask again", retry_after_s=INTERVAL_S
            )
        return Span(name, whole[chosen.start : chosen.stop])

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(INTERVAL_S, self._tick, loop)
        self.keep()


def _busiest(kept: Sequence[Moment], now: Moment) -> str:
    """The model whose batches took most time since the first of the moments, and of equal ones the first by name."""

    def spent_ns(name: str) -> int:
        before = kept[0].models.get(name) if kept else None
        spent = now.models[name].figures.batches.busy_ns
        return spent - before.figures.batches.busy_ns if before else spent

    return min(now.models, key=lambda name: (-spent_ns(name), name), default="")

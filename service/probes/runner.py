"""Which runs there are, one at a time, and what they found, model by model."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from weakref import ref

from service.batching.batcher import Batcher
from service.buckets import Bucket, CostTable
from service.client_text import name_text
from service.errors import Conflict, DeviceError, ProbeRunNotFound, Unsupported
from service.models import ModelSpec
from service.probes.bench import Bench, Results, Tools
from service.probes.catalogue import ProbeKind
from service.probes.pacing import Exclusive, Mode, Pacing, Shadow
from service.probes.run import ProbeRun
from service.probes.stop import Stop
from service.probes.traffic import Traffic
from service.requests import Clock
from service.telemetry.activity import Occupancy, OccupancyMarks
from service.telemetry.histogram import Histograms
from service.telemetry.snapshot_device import LayerProfile
from service.telemetry.snapshot_probes import ProbeFigures
from service.units import NS_PER_S

MAX_RUNS = 32
"""That are remembered, the latest ones."""

MAX_MODELS = 64
"""Whose results are kept, the latest ones."""

MAX_AGE_S = 86_400.0
"""Of results: drivers, neighbours and temperatures change."""

LEAST_INTERVAL_S = 10.0
"""Between the end of a run and the beginning of the next one on the same model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model that serves, as experiments see it.

    Attributes:
        spec: as it is served.
        costs: of a batch, by bucket.
        batcher: takes its requests; its backend is experimented on.
        buckets: as `Bench.buckets`; not empty.
        durations: of its answered requests so far; None where nothing is recorded.
        tools: what experiments need beside it, given how they rest.
    """

    spec: ModelSpec
    costs: CostTable
    batcher: Batcher
    buckets: tuple[Bucket, ...]
    durations: Callable[[], Histograms | None]
    tools: Callable[[Callable[[float], None]], Tools]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run.

    Attributes:
        kinds: which experiments.
        mode: how they share the lanes with the traffic.
        max_pause_s: for how long requests may wait at most, in the mode EXCLUSIVE.
    """

    kinds: tuple[ProbeKind, ...]
    mode: Mode
    max_pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownRun:
    """A run that was begun.

    Attributes:
        id: its name.
        model: on which it runs.
        order: what was asked for.
        run: itself.
        stop: ends it.
        began_unix_s: when it began.
    """

    id: str
    model: str
    order: Order
    run: ProbeRun
    stop: Stop
    began_unix_s: float


@dataclass(frozen=True, slots=True)
class Kept:
    """Results of one load of a model; `at_ns` is when the latest of them came."""

    batcher: ref[Batcher]
    results: Results
    at_ns: int


class ProbeRunner:
    """Begins runs, one at a time in a server: experiments on two models would measure each other. On the event loop.

    Args:
        serving: the batcher of a model that serves, by its name; None where none does.
        on_device_lost: told of an error after which nothing on the device can be relied on.
        clock: the batchers'.
        clock_unix_s: seconds since 1970.
        run_id: gives each run its name.
        make_stop: makes what ends a run, and what lets it wait.
    """

    def __init__(
        self,
        *,
        serving: Callable[[str], Batcher | None],
        on_device_lost: Callable[[DeviceError], None],
        clock: Clock = time.monotonic_ns,
        clock_unix_s: Callable[[], float] = time.time,
        run_id: Callable[[], str] = lambda: secrets.token_hex(4),
        make_stop: Callable[[], Stop] = Stop,
    ) -> None:
        self._serving = serving
        self._on_device_lost = on_device_lost
        self._clock = clock
        self._clock_unix_s = clock_unix_s
        self._run_id = run_id
        self._make_stop = make_stop
        self._runs: OrderedDict[str, KnownRun] = OrderedDict()
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._ended_ns: dict[str, int] = {}
        self._exclusive = Occupancy(clock())
        self._task: asyncio.Task[None] | None = None

    def start(self, subject: Subject, order: Order) -> KnownRun:
        """Begins a run, and returns at once.

        Raises:
            Conflict: another run is under way, or the model's last one has only just ended.
            Unsupported: the model is served at exact sizes, of which no batch is known beforehand.
        """
        self._check_free(subject.spec.name)
        if not subject.buckets:
            raise Unsupported(
                f"model '{subject.spec.name}' runs at every size of {', '.join(subject.spec.buckets.exact_dims)}, so "
                "there are no buckets to experiment with; name sizes in [buckets] of its card"
            )
        stop = self._make_stop()
        bench = _bench(subject, stop)
        run = ProbeRun(order.kinds, stop, clock=time.perf_counter_ns)
        known = KnownRun(
            id=self._run_id(),
            model=subject.spec.name,
            order=order,
            run=run,
            stop=stop,
            began_unix_s=self._clock_unix_s(),
        )
        self._runs[known.id] = known
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        self._task = asyncio.create_task(self._drive(known, subject, bench))
        return known

    def get(self, run_id: str) -> KnownRun:
        """A run that was begun.

        Raises:
            ProbeRunNotFound: there is none by that name, or no longer.
        """
        known = self._runs.get(run_id)
        if known is None:
            raise ProbeRunNotFound(
                f"no run of probes {name_text(run_id)} is known, the server remembers its latest {MAX_RUNS}; "
                "POST /diagnose/probes begins one"
            )
        return known

    def cancel(self, run_id: str) -> KnownRun:
        """Lets a run end after the round in hand; one that is over stays as it is.

        Raises:
            ProbeRunNotFound: as `get`.
        """
        known = self.get(run_id)
        if not known.run.is_over:
            known.stop.ask("it was cancelled")
        return known

    def latest(self, model: str) -> ProbeFigures:
        """What experiments found of a model as it is loaded now; nothing where there were none, or none of late."""
        return self._results(model).figures

    def latest_layers(self, model: str) -> tuple[LayerProfile, ...]:
        """Likewise its layers."""
        return self._results(model).layers

    def exclusive_runs(self, at_ns: int) -> OccupancyMarks:
        """Runs in the mode EXCLUSIVE until a moment of the clock; what is counted meanwhile is no traffic's."""
        return self._exclusive.marks(at_ns)

    async def stop(self) -> None:
        """Ends the run that is under way, and waits for its round."""
        if self._task is None or self._task.done():
            return
        for known in self._runs.values():
            if not known.run.is_over:
                known.stop.ask("the server is shutting down")
        await self._task

    async def _drive(self, known: KnownRun, subject: Subject, bench: Bench) -> None:
        batcher = subject.batcher
        pacing = self._pacing(subject, known.order, known.stop)
        is_exclusive = int(known.order.mode is Mode.EXCLUSIVE)
        if is_exclusive:
            self._exclusive.enter(self._clock())
        try:
            await known.run.drive(bench, batcher.pool.guests, pacing, self._on_device_lost)
        finally:
            now_ns = self._clock()
            self._exclusive.leave(now_ns, is_exclusive)
        self._ended_ns[known.model] = now_ns
        self._keep(known.model, batcher, known.run.results, now_ns)

    def _keep(self, name: str, batcher: Batcher, results: Results, now_ns: int) -> None:
        before = self._results(name)
        if results == Results():
            return
        self._kept[name] = Kept(ref(batcher), before.updated(results), now_ns)
        self._kept.move_to_end(name)
        while len(self._kept) > MAX_MODELS:
            self._ended_ns.pop(self._kept.popitem(last=False)[0], None)

    def _results(self, model: str) -> Results:
        kept = self._current(model)
        return Results() if kept is None else kept.results

    def _current(self, model: str) -> Kept | None:
        """Forgets what was found before the model was loaded again: another plan is another device to measure."""
        kept = self._kept.get(model)
        if kept is None:
            return None
        is_old = self._clock() - kept.at_ns > MAX_AGE_S * NS_PER_S
        if is_old or self._serving(model) is not kept.batcher():
            del self._kept[model]
            return None
        return kept

    def _check_free(self, model: str) -> None:
        if self._task is not None and not self._task.done():
            running = next(reversed(self._runs.values()))
            raise Conflict(
                f"run {running.id} of probes on model '{running.model}' is under way; wait for it, or end "
                f"it with DELETE /diagnose/probes/{running.id}"
            )
        since_s = (self._clock() - self._ended_ns[model]) / NS_PER_S if model in self._ended_ns else LEAST_INTERVAL_S
        if since_s < LEAST_INTERVAL_S:
            raise Conflict(
                f"the last run of probes on model '{model}' ended {since_s:.1f} s ago, the least time between two is "
                f"{LEAST_INTERVAL_S:.0f} s; retry later",
                retry_after_s=LEAST_INTERVAL_S - since_s,
            )

    def _pacing(self, subject: Subject, order: Order, stop: Stop) -> Pacing:
        if order.mode is Mode.EXCLUSIVE:
            return Exclusive(subject.batcher, stop, max_pause_s=order.max_pause_s, clock=self._clock)
        last = subject.spec.card.batching.priority_levels

        def traffic() -> Traffic:
            return Traffic(subject.durations(), subject.batcher.backlog_ns(last) / NS_PER_S)

        return Shadow(traffic, stop)


def _bench(subject: Subject, stop: Stop) -> Bench:
    batcher = subject.batcher
    return Bench(
        backend=batcher.pool.backend,
        spec=subject.spec,
        costs=subject.costs,
        lanes=batcher.lane_count,
        lane_bytes=sum(batcher.pool.figures()[0].device_bytes.values()),
        buckets=subject.buckets,
        tools=subject.tools(stop.rest),
    )

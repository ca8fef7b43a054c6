"""A server as a network of queues, run event by event, and the snapshot that its telemetry would give.

It knows nothing of the diagnosis: it is what predicted gains are held against. An event loop parses and renders, a pool
of threads prepares, a device runs batches: all that waits, up to the largest bucket, after a delay while it is idle.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from service.buckets import Bucket
from service.telemetry.snapshot import MetricsSnapshot, ModelFacts, Window
from service.telemetry.snapshot_device import BucketUse, DeviceFigures
from service.telemetry.snapshot_load import (
    Arrival,
    ArrivalFigures,
    ClientFigures,
    Durations,
    HostFigures,
    QueueFigures,
    RequestFigures,
    Stage,
    Station,
    StationFigures,
)
from service.telemetry.snapshot_probes import Interval, ProbeFigures

LOG_LENGTH = 4096
FIXED_S = {Stage.READ: 20e-6, Stage.DISPATCH: 50e-6, Stage.H2D: 40e-6, Stage.D2H: 20e-6, Stage.SEND: 40e-6}
"""Stages that nothing waits in."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The server and its load; rates are per second, every request has one row.

    Attributes:
        rate: of an open loop with gaps drawn at random; 0 for a closed loop.
        clients: of a closed loop.
        burst: requests that arrive at once, `burst / rate` apart on average.
        parse_s: of the event loop, per request; `render_s` likewise.
        prepare_s: of a thread of the pool.
        sizes: padded batch sizes.
        fixed_s: of a batch; `row_s` more for each of its padded rows.
        delay_s: for which an unfilled batch waits for company.
        max_queued: requests above which new ones are refused.
    """

    rate: float = 0.0
    clients: int = 0
    burst: int = 1
    parse_s: float = 40e-6
    prepare_s: float = 50e-6
    render_s: float = 40e-6
    threads: int = 4
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32)
    fixed_s: float = 400e-6
    row_s: float = 20e-6
    delay_s: float = 0.0
    max_queued: int = 100_000
    duration_s: float = 6.0
    seed: int = 7

    def cost_s(self, size: int) -> float:
        return self.fixed_s + self.row_s * size


@dataclass
class Request:
    arrived_s: float
    stamps: dict[Stage, float] = field(default_factory=dict)
    queued_s: float = 0.0
    idle_before_s: float = 0.0
    mark_s: float = 0.0


class Servers:
    """Servers that take jobs in their order."""

    def __init__(self, simulation: Simulation, count: int) -> None:
        self.simulation, self.free, self.busy_s, self.served = simulation, count, 0.0, 0
        self.waiting: deque[tuple[float, Callable[[], None]]] = deque()

    def submit(self, duration_s: float, done: Callable[[], None]) -> None:
        self.waiting.append((duration_s, done))
        self._start()

    def _start(self) -> None:
        while self.free and self.waiting:
            duration_s, done = self.waiting.popleft()
            self.free -= 1
            self.busy_s += duration_s
            self.served += 1
            self.simulation.after(duration_s, lambda done=done: self._end(done))

    def _end(self, done: Callable[[], None]) -> None:
        self.free += 1
        done()
        self._start()


class Simulation:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.now = plan, 0.0
        self.random = random.Random(plan.seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.loop, self.pool = Servers(self, 1), Servers(self, plan.threads)
        self.queue: deque[Request] = deque()
        self.is_running = False
        self.idle_s = self.idle_from_s = 0.0
        self.batches: dict[int, list[int]] = {}
        self.device_s = 0.0
        self.done: list[Request] = []
        self.arrivals: list[float] = []
        self.refused = 0
        self.in_flight = 0
        self.in_flight_sums = np.zeros(2)
        self.changed_s = 0.0

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay_s, next(self.numbers), event))

    def run(self) -> Simulation:
        if self.plan.clients:
            for _ in range(self.plan.clients):
                self.after(self.random.random() * 1e-3, self._arrive)
        else:
            self._next_arrival()
        while self.events and self.events[0][0] <= self.plan.duration_s:
            self.now, _, event = heapq.heappop(self.events)
            event()
        self._count(0)
        return self

    def _next_arrival(self) -> None:
        gap_s = self.random.expovariate(self.plan.rate / self.plan.burst)

        def arrive() -> None:
            for _ in range(self.plan.burst):
                self._arrive()
            self._next_arrival()

        self.after(gap_s, arrive)

    def _count(self, change: int) -> None:
        passed_s = (self.now if change else self.plan.duration_s) - self.changed_s
        self.in_flight_sums += passed_s * np.array([self.in_flight, self.in_flight**2])
        self.in_flight += change
        self.changed_s = self.now

    def _arrive(self) -> None:
        self.arrivals.append(self.now)
        if len(self.queue) >= self.plan.max_queued:
            self.refused += 1
            return
        self._count(1)
        request = Request(self.now)
        self._step(request, FIXED_S[Stage.READ], Stage.READ, lambda: self._on_loop(request))

    def _step(self, request: Request, duration_s: float, stage: Stage, then: Callable[[], None]) -> None:
        request.stamps[stage] = duration_s
        self.after(duration_s, then)

    def _timed(self, request: Request, stage: Stage, then: Callable[[], None]) -> Callable[[], None]:
        begun_s = self.now

        def ended() -> None:
            request.stamps[stage] = self.now - begun_s
            then()

        return ended

    def _on_loop(self, request: Request) -> None:
        self.loop.submit(self.plan.parse_s, self._timed(request, Stage.PARSE, lambda: self._on_pool(request)))

    def _on_pool(self, request: Request) -> None:
        self.pool.submit(self.plan.prepare_s, self._timed(request, Stage.PREPARE, lambda: self._enqueue(request)))

    def _idle_until_now(self) -> float:
        return self.idle_s if self.is_running else self.idle_s + self.now - self.idle_from_s

    def _enqueue(self, request: Request) -> None:
        request.queued_s, request.idle_before_s = self.now, self._idle_until_now()
        self.queue.append(request)
        if self.plan.delay_s:
            self.after(self.plan.delay_s, self._dispatch)
        self._dispatch()

    def _dispatch(self) -> None:
        if self.is_running or not self.queue:
            return
        is_due = self.now - self.queue[0].queued_s >= self.plan.delay_s - 1e-12
        count = self._best_size()
        # As the server does: what is full, or leaves requests behind, does not wait for company.
        if not is_due and count == len(self.queue) < self.plan.sizes[-1]:
            return
        taken = [self.queue.popleft() for _ in range(count)]
        size = min(size for size in self.plan.sizes if size >= len(taken))
        self.idle_s = self._idle_until_now()
        self.is_running = True
        duration_s = self.plan.cost_s(size)
        self.device_s += duration_s
        counts = self.batches.setdefault(size, [0, 0])
        counts[0], counts[1] = counts[0] + 1, counts[1] + len(taken)
        for request in taken:
            formation_s = self.idle_s - request.idle_before_s
            request.stamps |= {Stage.FORMATION: formation_s, Stage.COMPUTE: duration_s} | {
                stage: FIXED_S[stage] for stage in (Stage.DISPATCH, Stage.H2D, Stage.D2H)
            }
            request.stamps[Stage.BACKLOG] = self.now - request.queued_s - formation_s
        self.after(duration_s, lambda: self._completed(taken))

    def _best_size(self) -> int:
        """The batch with the most rows per second among those that fill, and all that waits."""
        waiting = min(len(self.queue), self.plan.sizes[-1])
        full = [size for size in self.plan.sizes if size <= waiting]
        above = min(size for size in self.plan.sizes if size >= waiting)
        options = [(size / self.plan.cost_s(size), size) for size in full]
        return max([*options, (waiting / self.plan.cost_s(above), waiting)])[1]

    def _completed(self, taken: list[Request]) -> None:
        self.is_running, self.idle_from_s = False, self.now
        for request in taken:
            self.after(
                sum(FIXED_S[stage] for stage in (Stage.DISPATCH, Stage.H2D, Stage.D2H)),
                lambda one=request: self._render(one),
            )
        self._dispatch()

    def _render(self, request: Request) -> None:
        request.stamps[Stage.COMPLETE] = 0.0
        self.loop.submit(self.plan.render_s, self._timed(request, Stage.RENDER, lambda: self._send(request)))

    def _send(self, request: Request) -> None:
        self._step(request, FIXED_S[Stage.SEND], Stage.SEND, lambda: self._answered(request))

    def _answered(self, request: Request) -> None:
        self._count(-1)
        request.mark_s = self.now - request.arrived_s
        self.done.append(request)
        if self.plan.clients:
            self._arrive()


def _durations(values: np.ndarray) -> Durations:
    p50_s, p99_s = np.quantile(values, (0.5, 0.99)) if len(values) else (0.0, 0.0)
    return Durations(len(values), float(values.sum()), float(p50_s), float(p99_s))


def measure(plan: Plan, *, json_share: float = 0.0, **probes: object) -> MetricsSnapshot:
    """Runs a plan and gives what the server would have recorded.

    Args:
        plan: the server and its load.
        json_share: share of the requests in JSON.
        probes: fields of `ProbeFigures`.
    """
    run = Simulation(plan).run()
    count, duration_s = len(run.done), plan.duration_s
    gaps = np.diff(run.arrivals)
    mean, square = run.in_flight_sums / duration_s
    stages = {stage: _durations(np.array([one.stamps[stage] for one in run.done])) for stage in Stage}
    return MetricsSnapshot(
        window=Window(began_unix_s=0.0, duration_s=duration_s, wall_duration_s=duration_s, ready_before_s=1.0),
        model=ModelFacts(
            name="model",
            version="1",
            backend="onnxruntime",
            batch_sizes=tuple(plan.sizes),
            max_queue_delay_s=plan.delay_s,
        ),
        requests=RequestFigures(
            rows=count,
            duration=_durations(np.array([one.mark_s for one in run.done])),
            stages=MappingProxyType(stages),
            failures={"overloaded": run.refused},
            in_flight_mean=float(mean),
            in_flight_std=float(max(0.0, square - mean**2) ** 0.5),
            json_share=json_share,
        ),
        stations=MappingProxyType(
            {
                Station.EVENT_LOOP: StationFigures(run.loop.busy_s, count),
                Station.THREAD_POOL: StationFigures(run.pool.busy_s, count, plan.threads),
                Station.DEVICE: StationFigures(run.device_s, count),
            }
        ),
        buckets=tuple(
            BucketUse(
                bucket=Bucket(size),
                batches=batches,
                rows=rows,
                useful_volume=rows,
                compute=Durations(batches, batches * plan.cost_s(size)),
                cold=Durations(0, 0.0),
            )
            for size, (batches, rows) in sorted(run.batches.items())
        ),
        costs_s=MappingProxyType({Bucket(size): plan.cost_s(size) for size in plan.sizes}),
        queue=QueueFigures(depth_mean=float(mean)),
        arrivals=ArrivalFigures(
            rows_per_s=len(run.arrivals) / duration_s,
            gap_cv2=float(gaps.var() / gaps.mean() ** 2),
            log=tuple(Arrival(at_s, 1) for at_s in run.arrivals[:LOG_LENGTH]),
        ),
        device=DeviceFigures(lanes=1, lanes_busy_mean=1.0),
        host=HostFigures(loop_lag_p99_s=1e-3, gil_wait_ratio=0.0, throttled_period_ratio=0.0, throttled_time_ratio=0.0),
        client=ClientFigures(concurrency=plan.clients or None),
        probes=ProbeFigures(**probes),  # type: ignore[arg-type]
    )


def exactly(value: float) -> Interval:
    return Interval.exactly(value)


def changed(plan: Plan, **changes: object) -> Plan:
    return replace(plan, **changes)

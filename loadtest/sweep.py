"""Steps of a sweep, and running steps one after the other against one server."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from loadtest.arrivals import NS_PER_S
from loadtest.clock import Clock
from loadtest.errors import LoadTestError
from loadtest.figures import Tally, summary_of
from loadtest.generators import Generator
from loadtest.limits import Observation, verdict
from loadtest.payloads import Wire
from loadtest.records import Window
from loadtest.report import CpuFigures, StepReport
from loadtest.scenario import Step, check_step
from loadtest.session import Session, StepJob
from loadtest.watch import Watch

_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What a sweep varies: every wire with every mix of rows, and each of these with every load, closed loops first.

    Attributes:
        concurrencies: requests in flight of the closed loops.
        rates: requests per second of the open loops.
        rows: mixes of sizes.
        wires: how tensors travel.
    """

    concurrencies: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ((1,),)
    wires: tuple[Wire, ...] = (Wire.BINARY,)


def steps_of(axes: Axes, defaults: Step) -> list[Step]:
    """The steps of a sweep; `defaults` gives all that it does not vary. Titles name what varies.

    Raises:
        LoadTestError: a value makes no sense.
    """
    steps = []
    for wire, rows in itertools.product(axes.wires, axes.rows):
        base = dataclasses.replace(defaults, wire=wire, rows=rows, concurrency=None, rate=None)
        loads = [dataclasses.replace(base, concurrency=concurrency) for concurrency in axes.concurrencies]
        loads += [dataclasses.replace(base, rate=rate) for rate in axes.rates]
        suffix = f" rows={','.join(map(str, rows))}" if len(axes.rows) > 1 else ""
        suffix += f" {wire.value}" if len(axes.wires) > 1 else ""
        steps += [dataclasses.replace(step, label=step.title + suffix) for step in loads]
    return [check_step(step) for step in steps]


@dataclass(frozen=True, slots=True)
class Bench:
    """A server under load.

    Attributes:
        session: where and how requests go.
        generator: who sends them.
        watch: what is watched meanwhile.
        frontends: that the server runs with; None if that is not known.
    """

    session: Session
    generator: Generator
    watch: Watch
    frontends: int | None = None

    async def run(self, clock: Clock, steps: Sequence[Step], reports: list[StepReport]) -> None:
        """Runs steps one after the other, paced by `clock`; each report is added to `reports` once it is there.

        Raises:
            LoadTestError: the server cannot be reached, refuses the trial requests, or stops answering.
        """
        metadata = await self.session.metadata(clock)
        first = len(reports)
        for step in steps:
            rate = _rate(step, reports[first:])
            job = StepJob(metadata, step, rate)
            tally, seen = await self.generator.run(clock, self.session, job, partial(self._observe, clock))
            reports.append(self._report(step, rate, tally, seen))

    async def _observe(self, clock: Clock, window: Window, pids: Sequence[int]) -> Observation:
        return await self.watch.of_clients(pids)(clock, window)

    def _report(self, step: Step, rate: float | None, tally: Tally, seen: Observation) -> StepReport:
        summary = summary_of(tally, self.session.objective_ms)
        return StepReport(
            step,
            rate,
            summary,
            frontends=self.frontends,
            seen=seen,
            cpu=cpu_figures(tally, seen),
            verdict=verdict(seen, summary, is_open=step.concurrency is None),
        )


def cpu_figures(tally: Tally, seen: Observation) -> CpuFigures:
    """CPU time of both sides per right answer of the measured time; None without answers, or without processes."""
    answers_per_s = tally.arrived * NS_PER_S / tally.measured_ns
    if not answers_per_s:
        return CpuFigures(None, None)
    server_cores = seen.server_cores
    server_ms = None if server_cores is None else server_cores * _MS_PER_S / answers_per_s
    return CpuFigures(server_ms, seen.client_cores * _MS_PER_S / answers_per_s)


def _rate(step: Step, reports: Sequence[StepReport]) -> float | None:
    """Requests per second of an open loop, None of a closed one."""
    if step.capacity_fraction is None:
        return step.rate
    capacity = max((r.summary.throughput_per_s for r in reports if r.step.concurrency is not None), default=0.0)
    if not capacity:
        raise LoadTestError(
            f"step {step.title!r} wants {step.capacity_fraction:g} of the capacity, but no closed loop before it got "
            "an answer; put a step with concurrency first"
        )
    return capacity * step.capacity_fraction

"""`python -m loadtest.soak MODEL --serve REPOSITORY`: many requests for a long time, and whether memory stays flat.

Starts a server, warms it up, and then keeps it busy until both so many requests were answered and so much time has
passed. Meanwhile the memory of every process of the server is sampled. Exits with 1 if a process grew by the bound or
more, started or ended on the way, if a request failed, or if the limit of time came first; with 2 if there was no soak.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from loadtest.arrivals import NS_PER_S
from loadtest.clock import Clock, SystemClock
from loadtest.errors import LoadTestError
from loadtest.figures import Tally
from loadtest.generators import Generator, generator
from loadtest.limits import Observation
from loadtest.memory import MemoryGrowth, MemorySample, memory_growth
from loadtest.payloads import parse_dims, parse_sizes
from loadtest.processes import ServerProcess, server_process
from loadtest.records import Window
from loadtest.scenario import Step
from loadtest.session import Session, StepJob, run_in_loop
from loadtest.usage import memory_bytes, process_times, process_tree
from loadtest.watch import Watch

SLICE_S = 20.0
"""The load comes in pieces of this length: what is kept of each request is boiled down after each."""

_BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """How long to go on.

    Attributes:
        requests: right answers to get after the warm-up, at least.
        seconds: time after the warm-up, at least.
        warm_up_s: before memory counts.
        limit_s: time after the warm-up, at most (and the piece of load that is running then).
        interval_s: between two samples of memory.
    """

    requests: int
    seconds: float
    warm_up_s: float
    limit_s: float
    interval_s: float

    def is_over(self, answered: int, elapsed_s: float) -> bool:
        """Whether both has been reached, or the limit of time."""
        return elapsed_s >= self.limit_s or (answered >= self.requests and elapsed_s >= self.seconds)


@dataclass(slots=True)
class Soak:
    """A soak while it runs, and what it has seen after the warm-up. Used on one event loop's thread."""

    session: Session
    generator: Generator
    server_pid: int
    plan: SoakPlan
    seconds: float = 0.0
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    answers_per_s: list[float] = field(default_factory=list)
    server_cores: list[float] = field(default_factory=list)
    samples: list[MemorySample] = field(default_factory=list)

    async def run(self, clock: Clock, step: Step) -> None:
        """Loads the server with `step` again and again, paced by `clock`.

        Raises:
            LoadTestError: the server cannot be reached, refuses the trial requests, or stops answering.
        """
        job = StepJob(await self.session.metadata(clock), step)
        warm_until_ns = clock.now_ns() + round(self.plan.warm_up_s * NS_PER_S)
        while clock.now_ns() < warm_until_ns:
            await self._load(clock, job)
        self.samples.clear()
        start_ns = clock.now_ns()
        while not self.plan.is_over(self.answered, self.seconds):
            tally, seen = await self._load(clock, job)
            self.answered += tally.arrived
            self.errors.update({label: len(durations) for label, durations in tally.failures.items()})
            self.answers_per_s.append(tally.arrived * NS_PER_S / tally.measured_ns)
            self.server_cores.append(seen.server_cores or 0.0)
            self.seconds = (clock.now_ns() - start_ns) / NS_PER_S

    async def _load(self, clock: Clock, job: StepJob) -> tuple[Tally, Observation]:
        watch = Watch(endpoint=self.session.endpoint, headers=self.session.headers, server=self.server_pid)

        async def observe(window: Window, pids: Sequence[int]) -> Observation:
            sampling = asyncio.ensure_future(self._sample(clock))
            try:
                return await watch.of_clients(pids)(clock, window)
            finally:
                sampling.cancel()

        return await self.generator.run(clock, self.session, job, observe)

    async def _sample(self, clock: Clock) -> None:
        while True:
            sizes = {pid: memory_bytes(pid) for pid in process_tree(self.server_pid)}
            known = {pid: size for pid, size in sizes.items() if size is not None}
            self.samples.append(MemorySample(clock.now_ns() / NS_PER_S, known))
            await asyncio.sleep(self.plan.interval_s)


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What a soak came to; `misses` says in words what is not as it should be, and is empty if all is well.

    Attributes:
        frontends: of the server; None if that was left to it.
        seconds: after the warm-up.
        answered: right answers.
        errors: failed requests by label.
        answers_per_s: of each piece of the load, in order.
        server_cores: CPU time per second of all processes of the server, likewise.
        names: what each process of the server runs, by id.
        growth: of each process.
        misses: what was missed.
    """

    frontends: int | None
    seconds: float
    answered: int
    errors: dict[str, int]
    answers_per_s: list[float]
    server_cores: list[float]
    names: dict[int, str]
    growth: tuple[MemoryGrowth, ...]
    misses: list[str]


def misses(soak: Soak, growth: Sequence[MemoryGrowth], bound: float) -> list[str]:
    """What a soak missed, in words.

    Args:
        soak: that has run.
        growth: of the server's processes.
        bound: growth from which on memory is not flat, such as 0.01.
    """
    found = [f"process {one.pid} grew by {one.growth:.2%}, bound {bound:.2%}" for one in growth if one.growth >= bound]
    found += [f"process {one.pid} was not there all the time" for one in growth if not one.is_whole]
    found += [f"{count} requests failed: {label}" for label, count in soak.errors.items()]
    if soak.answered < soak.plan.requests:
        found.append(f"{soak.answered} of {soak.plan.requests} requests were answered within {soak.plan.limit_s:g} s")
    return found


def main(  # noqa: PLR0913 - one parameter an option, as typer wants it
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    *,
    serve: Annotated[Path, typer.Option(help="Model repository to start a server on.")],
    frontends: Annotated[int | None, typer.Option(min=0, max=64, help="Front ends of the server.")] = None,
    serve_command: Annotated[str, typer.Option(help="Command that serves.")] = "inferlane serve",
    requests: Annotated[int, typer.Option(min=1, help="Requests to answer, at least.")] = 1_000_000,
    duration: Annotated[float, typer.Option(min=0.1, help="Time in seconds, at least.")] = 600.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Time before memory counts, in seconds.")] = 60.0,
    limit: Annotated[float, typer.Option(min=1, help="Time in seconds, at most.")] = 3600.0,
    interval: Annotated[float, typer.Option(min=0.01, help="Time between two samples of memory.")] = 2.0,
    bound: Annotated[float, typer.Option(min=0, max=1, help="Growth of memory from which on it is not flat.")] = 0.01,
    concurrency: Annotated[int, typer.Option(min=1, max=4096, help="Requests in flight.")] = 16,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Client processes that share the load.")] = 1,
    rows: Annotated[str, typer.Option(help="Rows per request; several, such as 1,4, are mixed.")] = "1",
    dim: Annotated[list[str] | None, typer.Option(help="Sizes of a dynamic dimension, such as width=160,320.")] = None,
    json: Annotated[Path | None, typer.Option(help="File to write all figures to.")] = None,
) -> None:
    """Keeps MODEL busy for a long time; reports how the memory of the server's processes went."""
    plan = SoakPlan(requests, duration, warm_up, limit, interval)
    options = ["--repository", str(serve), *(["--frontends", str(frontends)] if frontends else [])]
    console = Console(soft_wrap=True)
    try:
        step = Step(
            concurrency=concurrency,
            duration_s=min(SLICE_S, duration),
            warm_up_s=0.0,
            rows=parse_sizes(rows),
            dims=parse_dims(dim or ()),
        )
        with (
            tempfile.TemporaryDirectory(prefix="inferlane-soak-") as scratch,
            server_process([*shlex.split(serve_command), *options], Path(scratch) / "log") as server,
        ):
            soak = run_in_loop(_soak(server, model, plan, step, processes))
            names = {pid: time.name for pid, time in process_times(process_tree(server.pid)).items()}
    except LoadTestError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    report = _report(soak, frontends, names, bound)
    console.print(_table(report))
    for miss in report.misses:
        console.print(f"missed: {miss}", markup=False, highlight=False)
    if json is not None:
        document = {"model": model, "plan": plan, "report": report, "samples": soak.samples}
        json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    if report.misses:
        raise typer.Exit(1)


async def _soak(server: ServerProcess, model: str, plan: SoakPlan, step: Step, processes: int) -> Soak:
    session = Session(endpoint=server.endpoint, model=model)
    async with SystemClock() as clock, generator(processes) as sender:
        soak = Soak(session, sender, server.pid, plan)
        await soak.run(clock, step)
    return soak


def _report(soak: Soak, frontends: int | None, names: dict[int, str], bound: float) -> SoakReport:
    growth = memory_growth(soak.samples)
    return SoakReport(
        frontends=frontends,
        seconds=soak.seconds,
        answered=soak.answered,
        errors=dict(soak.errors),
        answers_per_s=soak.answers_per_s,
        server_cores=soak.server_cores,
        names=names,
        growth=growth,
        misses=misses(soak, growth, bound),
    )


def _table(report: SoakReport) -> Table:
    title = f"{report.answered} answers in {report.seconds:.0f} s; memory of the server's processes, MiB"
    table = Table(title=title, box=SIMPLE)
    table.add_column("process")
    for name in ("first", "last", "most", "growth"):
        table.add_column(name, justify="right")
    for one in report.growth:
        sizes = [f"{size / _BYTES_PER_MIB:.2f}" for size in (one.first_bytes, one.last_bytes, one.most_bytes)]
        table.add_row(f"{one.pid} {report.names.get(one.pid, 'ended')}", *sizes, f"{one.growth:+.2%}")
    return table


if __name__ == "__main__":
    typer.run(main)

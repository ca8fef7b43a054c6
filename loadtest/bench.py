"""`python -m loadtest.bench MODEL`: closed- and open-loop load on one model of a server, one step or a sweep of them.

Prints tables and, with `--json`, writes every figure: what each step achieved, what it cost both sides in CPU time,
and what limited it. Exits with 1 when a request of the measured time failed, so that a script notices; with 2 when the
load could not be run as asked.
"""

from __future__ import annotations

import os
import platform
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.arrivals import Arrivals
from loadtest.clock import SystemClock
from loadtest.connection import parse_url
from loadtest.errors import LoadTestError
from loadtest.generators import generator
from loadtest.payloads import Wire, parse_dims, parse_sizes
from loadtest.processes import server_process
from loadtest.report import StepReport, limits_table, report_json, stages_table, steps_table
from loadtest.scenario import Step, load_scenario
from loadtest.session import Session, run_in_loop
from loadtest.sweep import Axes, Bench, steps_of
from loadtest.watch import Watch

_TABLE_COLUMNS = 124


@dataclass(frozen=True, slots=True)
class Target:
    """A server to load: how to reach it, its process where that is known, and its front ends likewise."""

    session: Session
    pid: int | None = None
    frontends: int | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """Servers to start, one after the other.

    Attributes:
        command: that serves, without the options that are added to it.
        repository: what to serve; None starts nothing.
        frontends: numbers of front ends to try; empty leaves the option out.
    """

    command: Sequence[str]
    repository: Path | None
    frontends: Sequence[int]

    def targets(self, session: Session, pid: int | None) -> Iterator[Target]:
        """The servers to load, each of which runs until the next is asked for; `session` and `pid` if none is started.

        Raises:
            LoadTestError: a server does not start, or the options do not fit each other.
        """
        if self.repository is None:
            if self.frontends:
                raise LoadTestError("--frontends needs a server that is started here; give --serve REPOSITORY")
            yield Target(session, pid)
            return
        if pid is not None:
            raise LoadTestError("--serve starts a server of its own; leave --server-pid out")
        for frontends in self.frontends or (None,):
            options = ["--repository", str(self.repository)]
            options += ["--frontends", str(frontends)] if frontends else []
            with (
                tempfile.TemporaryDirectory(prefix="inferlane-bench-") as scratch,
                server_process([*self.command, *options], Path(scratch) / "log") as server,
            ):
                yield Target(replace(session, endpoint=server.endpoint), server.pid, frontends)


def main(  # noqa: PLR0913 - one parameter an option, as typer wants it
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    *,
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8000",
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, max=4096, help="Closed loop: requests in flight; several are swept.")
    ] = None,
    rate: Annotated[
        list[float] | None, typer.Option(min=0.001, help="Open loop: requests per second; several are swept.")
    ] = None,
    arrivals: Annotated[Arrivals, typer.Option(help="Open loop: spread of the send times.")] = Arrivals.POISSON,
    burst_size: Annotated[int, typer.Option(min=1, help="Requests due at once, with --arrivals burst.")] = 16,
    duration: Annotated[float, typer.Option(min=0.01, max=3600, help="Measured time, in seconds.")] = 10.0,
    warm_up: Annotated[float, typer.Option(min=0, max=600, help="Unreported time before it, in seconds.")] = 2.0,
    grace: Annotated[float, typer.Option(min=0, max=600, help="Time for late answers after it, in seconds.")] = 5.0,
    rows: Annotated[
        list[str] | None, typer.Option(help="Rows per request, 1 if not given; 1,4 are mixed, several are swept.")
    ] = None,
    dim: Annotated[list[str] | None, typer.Option(help="Sizes of a dynamic dimension, such as width=160,320.")] = None,
    wire: Annotated[
        list[Wire] | None, typer.Option(help="How tensors travel, binary if not given; several are swept.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of send times and payloads.")] = 0,
    scenario: Annotated[Path | None, typer.Option(help="Steps from a TOML file, instead of loads given here.")] = None,
    objective_ms: Annotated[float | None, typer.Option(min=0, help="Latency up to which an answer is goodput.")] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds after which a request has failed.")] = 30.0,
    max_connections: Annotated[int, typer.Option(min=1, max=4096, help="Open loop: connections at most.")] = 256,
    header: Annotated[list[str] | None, typer.Option(help="Added to each request, such as 'Name: value'.")] = None,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Client processes that share each load.")] = 1,
    serve: Annotated[Path | None, typer.Option(help="Model repository to start a server on.")] = None,
    frontends: Annotated[
        list[int] | None, typer.Option(min=0, max=64, help="With --serve: its front ends; several are swept.")
    ] = None,
    serve_command: Annotated[str, typer.Option(help="With --serve: command that serves.")] = "inferlane serve",
    server_pid: Annotated[
        int | None, typer.Option(min=1, help="Process id of the server at --url, if its CPU time is wanted.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="File to write all figures to.")] = None,
) -> None:
    """Loads MODEL; reports throughput, latencies from the due times, errors, CPU per request, and what limited it."""
    reports: list[StepReport] = []
    failure: LoadTestError | None = None
    try:
        defaults = Step(
            arrivals=arrivals,
            burst_size=burst_size,
            duration_s=duration,
            warm_up_s=warm_up,
            grace_s=grace,
            dims=parse_dims(dim or ()),
            seed=seed,
        )
        axes = Axes(
            concurrencies=tuple(concurrency or ()) or (() if rate or scenario else (1,)),
            rates=tuple(rate or ()),
            rows=tuple(parse_sizes(sizes) for sizes in rows or ("1",)),
            wires=tuple(wire or (Wire.BINARY,)),
        )
        steps = _steps(scenario, axes, defaults)
        session = Session(
            endpoint=parse_url(url),
            model=model,
            headers=headers_of(header or ()),
            max_connections=max_connections,
            timeout_s=timeout,
            objective_ms=objective_ms,
        )
        serving = Serving(shlex.split(serve_command), serve, frontends or ())
        for target in serving.targets(session, server_pid):
            run_in_loop(_run(target, processes, steps, reports))
    except LoadTestError as error:
        failure = error
    _print(f"{model} at {serve or url}", reports)
    if json is not None and reports:
        json.write_bytes(report_json(reports, _about(url, model, processes)))
    raise typer.Exit(_exit_status(reports, failure))


def _exit_status(reports: Sequence[StepReport], failure: LoadTestError | None) -> int:
    """2 for a failure, which is printed; 1 if a request failed."""
    if failure is not None:
        Console(stderr=True).print(f"error: {failure}", style="red", markup=False, highlight=False)
        return 2
    return 1 if any(report.summary.errors for report in reports) else 0


def _steps(scenario: Path | None, axes: Axes, defaults: Step) -> list[Step]:
    if scenario is None:
        return steps_of(axes, defaults)
    if axes.concurrencies or axes.rates or len(axes.rows) > 1 or len(axes.wires) > 1:
        raise LoadTestError("a --scenario has loads of its own: leave --concurrency, --rate and all sweeps out")
    return load_scenario(scenario, replace(defaults, rows=axes.rows[0], wire=axes.wires[0]))


async def _run(target: Target, processes: int, steps: Sequence[Step], reports: list[StepReport]) -> None:
    session = target.session
    watch = Watch(endpoint=session.endpoint, headers=session.headers, server=target.pid)
    async with SystemClock() as clock, generator(processes) as sender:
        await Bench(session, sender, watch, target.frontends).run(clock, steps, reports)


def headers_of(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Headers from the values of `--header`.

    Raises:
        LoadTestError: one is none.
    """
    headers = []
    for option in options:
        name, colon, value = option.partition(":")
        if not colon or not name.strip() or not option.isprintable():
            # The option itself stays out of the message: it may well hold a key.
            raise LoadTestError("a --header is no 'Name: value' on one line, such as 'Authorization: Bearer KEY'")
        headers.append((name.strip(), value.strip()))
    return tuple(headers)


def _print(title: str, reports: Sequence[StepReport]) -> None:
    if not reports:
        return
    # A narrow terminal wraps lines, which is legible; rich would cut figures short instead.
    console = Console(width=max(Console().width, _TABLE_COLUMNS))
    for table in (steps_table(title, reports), stages_table(reports), limits_table(reports)):
        if table is not None:
            console.print(table)
    for report in reports:
        for text in report.verdict.evidence if report.verdict is not None else ():
            console.print(f"{report.title}: {text}", markup=False, highlight=False)
        for label, error in report.summary.errors.items():
            said = f": {error.example}" if error.example not in {"", label} else ""
            console.print(f"{report.title}: {error.count} x {label}{said}", markup=False, highlight=False)


def _about(url: str, model: str, processes: int) -> dict[str, object]:
    return {
        "model": model,
        "url": url,
        "finished_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "generator": {
            "processes": processes,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
    }


if __name__ == "__main__":
    typer.run(main)

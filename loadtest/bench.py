"""`python -m loadtest.bench MODEL`: closed- or open-loop load on one model of a running server.

Prints a table and, with `--json`, writes every figure. Exits with 1 when a request of the measured time failed, so
that a script notices; with 2 when the load could not be run as asked.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.arrivals import Arrivals
from loadtest.clock import SystemClock
from loadtest.connection import parse_url
from loadtest.errors import LoadTestError
from loadtest.payloads import Wire, parse_dims, parse_sizes
from loadtest.report import StepReport, report_json, stages_table, steps_table
from loadtest.scenario import Step, check_step, load_scenario
from loadtest.session import Session, run_in_loop

_TABLE_COLUMNS = 124


def main(  # noqa: PLR0913 - one parameter an option, as typer wants it
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    *,
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8000",
    concurrency: Annotated[int | None, typer.Option(min=1, max=4096, help="Closed loop: requests in flight.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Open loop: requests per second.")] = None,
    arrivals: Annotated[Arrivals, typer.Option(help="Open loop: spread of the send times.")] = Arrivals.POISSON,
    burst_size: Annotated[int, typer.Option(min=1, help="Requests due at once, with --arrivals burst.")] = 16,
    duration: Annotated[float, typer.Option(min=0.01, max=3600, help="Measured time, in seconds.")] = 10.0,
    warm_up: Annotated[float, typer.Option(min=0, max=600, help="Unreported time before it, in seconds.")] = 2.0,
    grace: Annotated[float, typer.Option(min=0, max=600, help="Time for late answers after it, in seconds.")] = 5.0,
    rows: Annotated[str, typer.Option(help="Rows per request; several, such as 1,4, are mixed.")] = "1",
    dim: Annotated[list[str] | None, typer.Option(help="Sizes of a dynamic dimension, such as width=160,320.")] = None,
    wire: Annotated[Wire, typer.Option(help="How tensors travel.")] = Wire.BINARY,
    seed: Annotated[int, typer.Option(min=0, help="Of send times and payloads.")] = 0,
    scenario: Annotated[Path | None, typer.Option(help="Steps from a TOML file, instead of one load.")] = None,
    objective_ms: Annotated[float | None, typer.Option(min=0, help="Latency up to which an answer is goodput.")] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds after which a request has failed.")] = 30.0,
    max_connections: Annotated[int, typer.Option(min=1, max=4096, help="Open loop: connections at most.")] = 256,
    header: Annotated[list[str] | None, typer.Option(help="Added to each request, such as 'Name: value'.")] = None,
    json: Annotated[Path | None, typer.Option(help="File to write all figures to.")] = None,
) -> None:
    """Loads MODEL and reports throughput, latency percentiles from the due times, errors and server stages."""
    try:
        defaults = Step(
            concurrency=concurrency if concurrency or rate or scenario else 1,
            rate=rate,
            arrivals=arrivals,
            burst_size=burst_size,
            duration_s=duration,
            warm_up_s=warm_up,
            grace_s=grace,
            rows=parse_sizes(rows),
            dims=parse_dims(dim or ()),
            wire=wire,
            seed=seed,
        )
        steps = load_scenario(scenario, defaults) if scenario else [check_step(defaults)]
        session = Session(
            endpoint=parse_url(url),
            model=model,
            headers=headers_of(header or ()),
            max_connections=max_connections,
            timeout_s=timeout,
            objective_ms=objective_ms,
        )
        reports = run_in_loop(_run(session, steps))
    except LoadTestError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    _print(f"{model} at {url}", reports)
    if json is not None:
        json.write_bytes(report_json(reports, _about(url, model)))
    if any(report.summary.errors for report in reports):
        raise typer.Exit(1)


async def _run(session: Session, steps: Sequence[Step]) -> list[StepReport]:
    async with SystemClock() as clock:
        return await session.run(clock, steps)


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
    # A narrow terminal wraps lines, which is legible; rich would cut figures short instead.
    console = Console(width=max(Console().width, _TABLE_COLUMNS))
    console.print(steps_table(title, reports))
    stages = stages_table(reports)
    if stages is not None:
        console.print(stages)
    for report in reports:
        for label, error in report.summary.errors.items():
            console.print(f"{report.step.title}: {label}: {error.example}", markup=False, highlight=False)


def _about(url: str, model: str) -> dict[str, object]:
    return {
        "model": model,
        "url": url,
        "finished_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "generator": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
    }


if __name__ == "__main__":
    typer.run(main)

"""What a server still answers when more media come than it can read: `/predict` at its capacity, then far beyond it.

    python -m loadtest.overload ocr page.png --url http://127.0.0.1:8000 --factor 3

Closed loops find the most answers per second; an open loop with Poisson arrivals then asks for `factor` times as many.
A server that refuses in time keeps answering as many; one that refuses late has worked for nobody.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.console import Console

from loadtest.arrivals import NS_PER_S, ArrivalPlan, Arrivals, send_offsets_ns
from loadtest.client import Client
from loadtest.clock import Clock, SystemClock
from loadtest.connection import Endpoint, parse_url
from loadtest.errors import LoadTestError
from loadtest.loops import LoadLoop, Message, StepRun
from loadtest.records import RequestRecord, Window
from loadtest.session import run_in_loop

NS_PER_MS = 1_000_000

MAX_CONNECTIONS = 512


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What became of one load.

    Attributes:
        offered_per_s: requests due per second; of a closed loop, requests sent.
        answers_per_s: right answers of them, by the time until the last one came.
        answered_p99_ms: of the right answers, from when they were due; None without any.
        refused_p99_ms: the same of all others.
        statuses: requests by status; 0 for those without an answer.
        example: what the first answer of each other status said.
    """

    offered_per_s: float
    answers_per_s: float
    answered_p99_ms: float | None
    refused_p99_ms: float | None
    statuses: dict[int, int]
    example: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both loads, and the share of the most answers per second that is left under the second."""

    capacity: LoadFigures
    overload: LoadFigures
    goodput_share: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send and how much.

    Attributes:
        endpoint: the server.
        request: the framed request.
        concurrencies: of the closed loops; the best one is the capacity.
        factor: the open loop's rate as a multiple of it.
        seconds: length of each loop.
        timeout_s: after which a request has failed.
    """

    endpoint: Endpoint
    request: bytes
    concurrencies: tuple[int, ...]
    factor: float
    seconds: float
    timeout_s: float


async def run_overload(plan: Plan) -> Outcome:
    """Runs the closed loops, then the open one. Takes `seconds` for each, and at most `timeout_s` more for the last.

    Raises:
        LoadTestError: the server does not answer.
    """
    async with SystemClock() as clock:
        closed = [await _closed(plan, clock, concurrency) for concurrency in plan.concurrencies]
        capacity = max(closed, key=lambda figures: figures.answers_per_s)
        if not capacity.answers_per_s:
            raise LoadTestError(f"not one request was answered with 200; the first of each kind: {capacity.example}")
        arrivals = ArrivalPlan(
            arrivals=Arrivals.POISSON, rate=plan.factor * capacity.answers_per_s, duration_s=plan.seconds
        )
        window = _window(plan, clock)
        async with _client(plan, clock) as client:
            run = await _loop(plan, client, clock, window).open(send_offsets_ns(arrivals))
    overload = load_figures(run, plan.seconds)
    return Outcome(capacity, overload, overload.answers_per_s / capacity.answers_per_s)


async def _closed(plan: Plan, clock: Clock, concurrency: int) -> LoadFigures:
    window = _window(plan, clock)
    async with _client(plan, clock) as client:
        return load_figures(await _loop(plan, client, clock, window).closed(concurrency), plan.seconds)


def _window(plan: Plan, clock: Clock) -> Window:
    return Window(clock.now_ns(), 0, round(plan.seconds * NS_PER_S), round(plan.timeout_s * NS_PER_S))


def _client(plan: Plan, clock: Clock) -> Client:
    return Client(plan.endpoint, clock, max_connections=MAX_CONNECTIONS, timeout_s=plan.timeout_s)


def _loop(plan: Plan, client: Client, clock: Clock, window: Window) -> LoadLoop:
    return LoadLoop(client, clock, [Message(plan.request, 1)], window, lambda answer: None)


def load_figures(run: StepRun, seconds: float) -> LoadFigures:
    """The figures of a loop that sent for `seconds`. Answers that came afterwards count, and so does their time."""
    right = [record for record in run.records if record.failure is None]
    last_ns = max((record.done_ns for record in right), default=0) - run.window.start_ns
    return LoadFigures(
        offered_per_s=len(run.records) / seconds,
        answers_per_s=len(right) / max(seconds, last_ns / NS_PER_S),
        answered_p99_ms=_p99_ms(right),
        refused_p99_ms=_p99_ms([record for record in run.records if record.failure is not None]),
        statuses=dict(Counter(record.status for record in run.records)),
        example=dict(run.examples),
    )


def _p99_ms(records: Sequence[RequestRecord]) -> float | None:
    latencies = [record.latency_ns for record in records]
    return float(np.percentile(latencies, 99, method="higher")) / NS_PER_MS if latencies else None


def main(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    media: Annotated[Path, typer.Argument(help="File that every request sends.", exists=True, dir_okay=False)],
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8000",
    factor: Annotated[float, typer.Option(min=0.1, max=100, help="Rate, as a multiple of the capacity.")] = 3.0,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="Length of each of the three loops.")] = 15.0,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Seconds until a request has failed.")] = 30.0,
) -> None:
    """Prints the figures as JSON. Exit status 2 if the load could not be run."""
    try:
        endpoint = parse_url(url)
        headers = (("Content-Type", "application/octet-stream"),)
        request = endpoint.frame("POST", f"/v2/models/{model}/predict", headers, media.read_bytes())
        plan = Plan(endpoint, request, (2, 4), factor, seconds, timeout)
        outcome = run_in_loop(run_overload(plan))
    except LoadTestError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    sys.stdout.write(
        orjson.dumps(asdict(outcome), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n"
    )


if __name__ == "__main__":
    typer.run(main)

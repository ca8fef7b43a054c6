"""`python -m loadtest.speed`: the speed bars of the service as ratios inside one run.

1. Front end: an identity model against the raw ASGI echo, one client, binary: at 4 KB the p50 may be 0.3 ms above
   the echo's, at 602 KB at most 1.3 times it.
2. Batching: 16 clients on a small CNN on one ONNX Runtime thread; throughput with batches of up to 16 against the
   same service with batches of 1: at least 1.8 times. Below it, what such batches gain without a server.

All servers run at once and are loaded in turns, so that a change of the machine's speed hits both sides of a ratio;
a figure is the median of its rounds. Needs `onnx`, `onnxruntime` and the installed service.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from loadtest.clock import SystemClock
from loadtest.connection import Answer, Endpoint
from loadtest.errors import LoadTestError
from loadtest.figures import Summary, summarise
from loadtest.metadata import ITEM_BYTES, ModelMetadata
from loadtest.processes import serving
from loadtest.scenario import Step
from loadtest.session import Session, StepJob, run_in_loop
from loadtest.speed_models import LARGE_DIMS, SMALL_DIMS, add_model, batch_gain, cnn_model, identity_model

CNN_CLIENTS = 16
CNN_MAX_BATCH_SIZE = 16
IDENTITY_MAX_BATCH_SIZE = 4
_TABLE_COLUMNS = 124


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound on what two sides, measured in turns, compare to.

    Attributes:
        name: what is measured, in words.
        unit: of both sides.
        limit: the bound.
        is_upper: whether results above the bound miss it, or results below it.
        compare: the result, from the medians of subject and reference.
    """

    name: str
    unit: str
    limit: float
    is_upper: bool
    compare: Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class BarResult:
    """What a bar came to: each round's figure of both sides, and the result of their medians."""

    name: str
    unit: str
    subject: tuple[float, ...]
    reference: tuple[float, ...]
    result: float
    limit: float
    is_met: bool


SMALL_BAR = Bar("identity 4 KB, c=1: p50 above the echo's", "ms", 0.3, True, lambda ours, echo: ours - echo)
LARGE_BAR = Bar(
    "identity 602 KB, c=1: p50 as a multiple of the echo's", "ms", 1.3, True, lambda ours, echo: ours / echo
)
BATCHING_BAR = Bar("CNN, c=16: throughput as a multiple of batches of 1", "1/s", 1.8, False, lambda a, b: a / b)


def judge(bar: Bar, subject: Sequence[float], reference: Sequence[float]) -> BarResult:
    """Holds the medians of both sides against the bar."""
    result = bar.compare(statistics.median(subject), statistics.median(reference))
    is_met = result <= bar.limit if bar.is_upper else result >= bar.limit
    return BarResult(bar.name, bar.unit, tuple(subject), tuple(reference), result, bar.limit, is_met)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often each side is measured, and how long: seconds measured, and seconds before that."""

    count: int
    seconds: float
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a bar.

    Attributes:
        endpoint: the server.
        is_echo: whether it answers with the request's own bytes instead of the model's outputs.
    """

    endpoint: Endpoint
    is_echo: bool = False


def measure(service: Endpoint, side: Side, model: str, step: Step) -> Summary:
    """Loads one side with what `service` says that `model` takes.

    Raises:
        LoadTestError: a request of the measured time failed.
    """

    async def run() -> Summary:
        async with SystemClock() as clock:
            metadata = await Session(endpoint=service, model=model).metadata(clock)
            fault = partial(echo_fault, row_bytes(metadata)) if side.is_echo else None
            session = Session(endpoint=side.endpoint, model=model)
            return summarise(await session.run_step(clock, StepJob(metadata, step), fault))

    summary = run_in_loop(run())
    if summary.errors or summary.latency is None:
        raise LoadTestError(f"the load on {model!r} at port {side.endpoint.port} failed: {dict(summary.errors)}")
    return summary


def row_bytes(metadata: ModelMetadata) -> int:
    """Bytes of one row of all inputs on the binary wire."""
    return sum(math.prod(tensor.shape[1:]) * ITEM_BYTES[tensor.datatype] for tensor in metadata.inputs)


def echo_fault(least_bytes: int, answer: Answer) -> str | None:
    """What is wrong with an echo: it must be longer than the tensor, since the JSON header comes back as well."""
    got_bytes = len(answer.body)
    return None if got_bytes > least_bytes else f"the echo has {got_bytes} bytes, the tensor alone {least_bytes}"


def front_end_bar(bar: Bar, service: Endpoint, echo: Endpoint, model: str, rounds: Rounds) -> BarResult:
    """p50 of the service against the echo's, in milliseconds, one client."""
    step = Step(concurrency=1, duration_s=rounds.seconds, warm_up_s=rounds.warm_up_s)

    def p50_ms(side: Side) -> float:
        latency = measure(service, side, model, step).latency
        assert latency is not None
        return latency.p50_ms

    return take_turns(bar, rounds, lambda: p50_ms(Side(service)), lambda: p50_ms(Side(echo, is_echo=True)))


def batching_bar(service: Endpoint, unbatched: Endpoint, rounds: Rounds) -> BarResult:
    """Throughput of the CNN with batching against without, in answers per second."""
    step = Step(concurrency=CNN_CLIENTS, duration_s=rounds.seconds, warm_up_s=rounds.warm_up_s)

    def throughput(endpoint: Endpoint) -> float:
        return measure(endpoint, Side(endpoint), "cnn", step).throughput_per_s

    return take_turns(BATCHING_BAR, rounds, lambda: throughput(service), lambda: throughput(unbatched))


def take_turns(bar: Bar, rounds: Rounds, ours: Callable[[], float], other: Callable[[], float]) -> BarResult:
    """Measures both sides in turns, as often as `rounds` says, and judges the bar."""
    pairs = [(ours(), other()) for _ in range(rounds.count)]
    return judge(bar, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def measure_all(serve: Sequence[str], rounds: Rounds, scratch: Path) -> list[BarResult]:
    """Makes the models, starts service, unbatched service and echo, and measures all bars.

    Args:
        serve: the command that serves, without `--repository` and `--port`.
        rounds: how often and how long.
        scratch: an empty folder for repositories and logs.

    Raises:
        LoadTestError: a server does not start, or a request failed.
    """
    batched, unbatched = scratch / "batched", scratch / "unbatched"
    add_model(batched, "identity-small", identity_model(SMALL_DIMS), IDENTITY_MAX_BATCH_SIZE)
    add_model(batched, "identity-large", identity_model(LARGE_DIMS), IDENTITY_MAX_BATCH_SIZE)
    add_model(batched, "cnn", cnn_model(), CNN_MAX_BATCH_SIZE)
    add_model(unbatched, "cnn", cnn_model(), 1)
    with contextlib.ExitStack() as servers:
        ours = servers.enter_context(serving([*serve, "--repository", str(batched)], scratch / "batched.log"))
        single = servers.enter_context(serving([*serve, "--repository", str(unbatched)], scratch / "unbatched.log"))
        echo = servers.enter_context(serving([sys.executable, "-m", "loadtest.echo"], scratch / "echo.log"))
        return [
            front_end_bar(SMALL_BAR, ours, echo, "identity-small", rounds),
            front_end_bar(LARGE_BAR, ours, echo, "identity-large", rounds),
            batching_bar(ours, single, rounds),
        ]


def results_table(results: Sequence[BarResult]) -> Table:
    """One line a bar, with the medians that its result came from."""
    table = Table(title="speed bars, medians of interleaved rounds", box=SIMPLE)
    table.add_column("bar")
    for name in ("service", "reference", "result", "bound"):
        table.add_column(name, justify="right")
    table.add_column("met")
    for result in results:
        sides = [f"{statistics.median(side):.3f} {result.unit}" for side in (result.subject, result.reference)]
        table.add_row(
            result.name, *sides, f"{result.result:.3f}", f"{result.limit:g}", "yes" if result.is_met else "NO"
        )
    return table


def main(
    serve: Annotated[str, typer.Option(help="Command that starts the service.")] = "inferlane serve",
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Rounds of each bar.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.05, max=60, help="Measured time of each side in a round.")] = 2.0,
    warm_up: Annotated[float, typer.Option(min=0, max=10, help="Unreported time before it, in seconds.")] = 0.5,
    json: Annotated[Path | None, typer.Option(help="File to write all figures to.")] = None,
) -> None:
    """Measures the speed bars; exits with 1 if one is missed, with 2 if they cannot be measured."""
    try:
        with tempfile.TemporaryDirectory(prefix="inferlane-speed-") as scratch:
            results = measure_all(shlex.split(serve), Rounds(rounds, seconds, warm_up), Path(scratch))
    except LoadTestError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    gain = batch_gain(cnn_model(), CNN_MAX_BATCH_SIZE)
    # A narrow terminal wraps lines, which is legible; rich would fold every cell instead.
    console = Console(width=max(Console().width, _TABLE_COLUMNS))
    console.print(results_table(results))
    console.print(
        f"The CNN by itself, on one thread: a row in a batch of {CNN_MAX_BATCH_SIZE} is {gain:.2f} x cheaper."
    )
    if json is not None:
        document = {"bars": results, "cnn_batch_gain": gain}
        json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    if not all(result.is_met for result in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

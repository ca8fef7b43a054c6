"""`python -m loadtest.stream MODEL`: streams of raw video frames, at a rate or as fast as they are answered.

Prints a table and the server's stages and, with `--json`, writes every figure. Exits with 1 when a frame of the
measured time failed or a stream broke; with 2 when the load could not be run as asked.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.console import Console

from loadtest.bench import headers_of
from loadtest.connection import Endpoint, parse_url
from loadtest.errors import LoadTestError
from loadtest.stream_connection import StreamConnection, binary_frame
from loadtest.stream_loop import Pace, StreamLoop
from loadtest.stream_report import StreamFigures, as_dict, figures, server_counts, server_figures, table

DISTINCT_FRAMES = 4
TIMEOUT_S = 30.0


class RawFormat(Enum):
    """Layouts of raw frames, in the protocol's words."""

    RGB = "rgb"
    BGR = "bgr"
    NV12 = "nv12"


class Freshness(Enum):
    """What becomes of frames that have to wait, in the protocol's words."""

    ALL = "all"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoad:
    """The load.

    Attributes:
        endpoint: of the server.
        model: name of the model.
        streams: open at once.
        frame_format: of the frames.
        width: pixels.
        height: pixels.
        rate: frames per second of each stream; None as fast as answers come.
        duration_s: measured time.
        warm_up_s: unreported time before it.
        max_in_flight: frames of a stream that may be worked on at once.
        freshness: what becomes of frames that have to wait.
        headers: added to the handshake.
    """

    endpoint: Endpoint
    model: str
    streams: int
    frame_format: RawFormat
    width: int
    height: int
    rate: float | None
    duration_s: float
    warm_up_s: float
    max_in_flight: int
    freshness: Freshness
    headers: tuple[tuple[str, str], ...]

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        samples = self.width * self.height * 3
        return samples // 2 if self.frame_format is RawFormat.NV12 else samples

    @property
    def header(self) -> dict[str, object]:
        """What each stream says first."""
        return {
            "format": self.frame_format.value,
            "width": self.width,
            "height": self.height,
            "max_in_flight": self.max_in_flight,
            "freshness": self.freshness.value,
        }


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What came of it: figures of each stream and of all, the server's own, and why streams broke, if they did."""

    by_stream: Sequence[StreamFigures]
    total: StreamFigures
    server: dict[str, object]
    failures: Sequence[str]


def main(  # noqa: PLR0913 - one parameter an option, as typer wants it
    model: Annotated[str, typer.Argument(help="Name of a model that takes images.")],
    *,
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8000",
    streams: Annotated[int, typer.Option(min=1, max=1024, help="Streams at once.")] = 1,
    frame_format: Annotated[RawFormat, typer.Option("--format", help="Layout of the frames.")] = RawFormat.RGB,
    width: Annotated[int, typer.Option(min=1, max=16384, help="Pixels.")] = 1920,
    height: Annotated[int, typer.Option(min=1, max=16384, help="Pixels.")] = 1080,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Frames per second and stream; as fast as answers come if not given."),
    ] = None,
    duration: Annotated[float, typer.Option(min=0.01, max=3600, help="Measured time, in seconds.")] = 10.0,
    warm_up: Annotated[float, typer.Option(min=0, max=600, help="Unreported time before it, in seconds.")] = 2.0,
    max_in_flight: Annotated[int, typer.Option(min=1, max=1024, help="Frames of a stream worked on at once.")] = 4,
    freshness: Annotated[Freshness, typer.Option(help="What becomes of frames that have to wait.")] = Freshness.ALL,
    header: Annotated[list[str] | None, typer.Option(help="Added to the handshake, such as 'Name: value'.")] = None,
    json: Annotated[Path | None, typer.Option(help="File to write all figures to.")] = None,
) -> None:
    """Streams noise to MODEL and reports frames per second, end-to-end latency, drops and the server's stages."""
    try:
        load = StreamLoad(
            endpoint=parse_url(url),
            model=model,
            streams=streams,
            frame_format=frame_format,
            width=width,
            height=height,
            rate=rate,
            duration_s=duration,
            warm_up_s=warm_up,
            max_in_flight=max_in_flight,
            freshness=freshness,
            headers=headers_of(header or ()),
        )
        report = run(load)
    except LoadTestError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error
    show(load, report, Console())
    if json is not None:
        json.write_bytes(orjson.dumps(document(load, report), option=orjson.OPT_INDENT_2))
    if report.failures or report.total.failed:
        raise typer.Exit(1)


def run(load: StreamLoad) -> StreamReport:
    """Runs the load on threads of its own; blocks until every frame is answered.

    Raises:
        LoadTestError: a stream cannot be opened.
    """
    frames = _frames(load)
    with ExitStack() as stack:
        connections = [_opened(load, stack) for _ in range(load.streams)]
        begin_s = time.monotonic() + load.warm_up_s
        end_s = begin_s + load.duration_s
        window = load.max_in_flight if load.rate is None or load.freshness is Freshness.ALL else None
        loops = [
            # Streams of one rate are not in step: cameras are not.
            StreamLoop(connection, frames, _pace(load, begin_s, end_s, number / load.streams), window)
            for number, connection in enumerate(connections)
        ]
        threads = [threading.Thread(target=loop.run, daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, begin_s - time.monotonic()))
        before = server_counts(load.endpoint, load.model, load.headers, TIMEOUT_S)
        for thread in threads:
            thread.join()
        elapsed_s = time.monotonic() - begin_s
        after = server_counts(load.endpoint, load.model, load.headers, TIMEOUT_S)
    every = [record for loop in loops for record in loop.records]
    return StreamReport(
        [figures(loop.records, 1, begin_s, end_s) for loop in loops],
        figures(every, load.streams, begin_s, end_s),
        server_figures(before, after, elapsed_s),
        [loop.failure for loop in loops if loop.failure is not None],
    )


def show(load: StreamLoad, report: StreamReport, console: Console) -> None:
    """Prints the table, the bytes per second, and the server's means."""
    size = f"{load.width} x {load.height} {load.frame_format.value}"
    console.print(table(f"{load.model}: {load.streams} streams of {size}", report.by_stream, report.total))
    gigabytes_per_s = report.total.frames_per_s * load.frame_bytes / 1e9
    stages = report.server["stages_ms"]
    assert isinstance(stages, dict), "made by server_figures"
    means = ", ".join(f"{stage} {mean_ms:.2f}" for stage, mean_ms in stages.items())
    rows, cores = report.server["mean_batch_rows"], report.server["cores_used"]
    console.print(f"{gigabytes_per_s:.2f} GB/s of frames; server: {cores:.2f} cores, mean batch {rows or 0:.2f} rows")
    console.print(f"mean ms by stage: {means}", soft_wrap=True)
    for failure in (*report.failures, *filter(None, [report.total.first_error])):
        console.print(failure, style="red", markup=False, highlight=False, soft_wrap=True)


def document(load: StreamLoad, report: StreamReport) -> dict[str, object]:
    """Everything, for JSON."""
    return {
        "model": load.model,
        "header": load.header,
        "frame_bytes": load.frame_bytes,
        "rate": load.rate,
        "duration_s": load.duration_s,
        "total": as_dict(report.total),
        "streams": [as_dict(each) for each in report.by_stream],
        "server": report.server,
        "failures": list(report.failures),
        "finished_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "generator": {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()},
    }


def _opened(load: StreamLoad, stack: ExitStack) -> StreamConnection:
    connection = stack.enter_context(StreamConnection(load.endpoint, load.model, load.headers, TIMEOUT_S))
    connection.say(load.header)
    answer = connection.hear()
    if not answer.get("ready"):
        raise LoadTestError(f"the server refuses the stream: {answer.get('error', answer)}")
    return connection


def _frames(load: StreamLoad) -> list[bytes]:
    generator = np.random.default_rng(0)
    return [binary_frame(generator.bytes(load.frame_bytes)) for _ in range(DISTINCT_FRAMES)]


def _pace(load: StreamLoad, begin_s: float, end_s: float, phase: float) -> Pace:
    offset_s = phase / load.rate if load.rate else 0.0
    return Pace(load.rate, begin_s - load.warm_up_s + offset_s, end_s)


if __name__ == "__main__":
    typer.run(main)

"""From frames to figures, and what the server counted meanwhile. Pure, but for the one request that asks it."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from loadtest.connection import Endpoint
from loadtest.errors import LoadTestError
from loadtest.stream_loop import FrameRecord

MS_PER_S = 1e3

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$")
_STAGE = re.compile(r'stage="(\w+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Of frames due in the measured time. Latencies are end to end, from when a frame was due to its answer.

    Attributes:
        streams: that the figures are of.
        answered: frames with a result.
        frames_per_s: those of them whose answers came in the measured time, per second.
        dropped: frames that the server dropped for newer ones.
        failed: frames that it could do nothing with.
        p50_ms: of the latencies; None where no frame was answered.
        p90_ms: likewise.
        p99_ms: likewise.
        max_ms: likewise.
        first_error: what the first failed frame was told.
    """

    streams: int
    answered: int
    frames_per_s: float
    dropped: int
    failed: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    first_error: str


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Totals of a server.

    Attributes:
        stages_s: seconds that the model's requests spent in each stage.
        requests: that they are of.
        rows: of the model's batches.
        batches: their number.
        cpu_s: CPU time of the server's process.
    """

    stages_s: Mapping[str, float]
    requests: float
    rows: float
    batches: float
    cpu_s: float


def figures(records: Sequence[FrameRecord], streams: int, begin_s: float, end_s: float) -> StreamFigures:
    """The figures of frames that were due from `begin_s` to `end_s`."""
    due = [record for record in records if begin_s <= record.due_s < end_s]
    errors = [record.error for record in due if record.error]
    good = [record for record in due if not record.error and not record.is_dropped]
    in_time = sum(
        begin_s <= record.answered_s < end_s for record in records if not record.error and not record.is_dropped
    )
    percentiles: list[float | None] = [None] * 4
    if good:
        latencies_ms = np.array([(record.answered_s - record.due_s) * MS_PER_S for record in good])
        percentiles = np.percentile(latencies_ms, [50, 90, 99, 100], method="inverted_cdf").tolist()
    p50_ms, p90_ms, p99_ms, max_ms = percentiles
    return StreamFigures(
        streams=streams,
        answered=len(good),
        frames_per_s=in_time / (end_s - begin_s),
        dropped=sum(record.is_dropped for record in due),
        failed=len(errors),
        p50_ms=p50_ms,
        p90_ms=p90_ms,
        p99_ms=p99_ms,
        max_ms=max_ms,
        first_error=errors[0] if errors else "",
    )


def server_counts(
    endpoint: Endpoint, model: str, headers: tuple[tuple[str, str], ...], timeout_s: float
) -> ServerCounts:
    """What the server has counted so far of a model, from `/metrics`; zeros where it counts nothing.

    Raises:
        LoadTestError: it does not answer.
    """
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{endpoint.prefix}/metrics", headers=dict(headers))
        text = connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise LoadTestError(f"the server's /metrics cannot be read: {error}") from error
    finally:
        connection.close()
    return parse_counts(text, model)


def parse_counts(text: str, model: str) -> ServerCounts:
    """The counts in a page of metrics."""
    stages_s: dict[str, float] = {}
    totals = dict.fromkeys(("requests", "rows", "batches", "cpu"), 0.0)
    names = {
        "inferlane_request_duration_seconds_count": "requests",
        "inferlane_batch_size_rows_sum": "rows",
        "inferlane_batch_size_rows_count": "batches",
    }
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        name, labels, value = sample[1], sample[2] or "", float(sample[3])
        if name == "process_cpu_seconds_total":
            totals["cpu"] += value
        elif f'model="{model}"' not in labels:
            continue
        elif name == "inferlane_request_stage_seconds_sum" and (stage := _STAGE.search(labels)):
            stages_s[stage[1]] = stages_s.get(stage[1], 0.0) + value
        elif name in names:
            totals[names[name]] += value
    return ServerCounts(stages_s, totals["requests"], totals["rows"], totals["batches"], totals["cpu"])


def server_figures(before: ServerCounts, after: ServerCounts, elapsed_s: float) -> dict[str, object]:
    """Means between two counts: of each stage, of the batch size, and the cores that the server's process used."""
    requests, batches = after.requests - before.requests, after.batches - before.batches
    return {
        "requests": requests,
        "stages_ms": {
            stage: (total_s - before.stages_s.get(stage, 0.0)) / requests * MS_PER_S
            for stage, total_s in after.stages_s.items()
            if requests
        },
        "mean_batch_rows": (after.rows - before.rows) / batches if batches else None,
        "cores_used": (after.cpu_s - before.cpu_s) / elapsed_s,
    }


def table(title: str, by_stream: Sequence[StreamFigures], total: StreamFigures) -> Table:
    """A row per stream and one for all."""
    shown = Table(title=title, box=SIMPLE, title_justify="left")
    for heading in ("stream", "frames/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "dropped", "failed"):
        shown.add_column(heading, justify="right")
    for name, each in (*((str(number), each) for number, each in enumerate(by_stream)), ("all", total)):
        latencies = (each.p50_ms, each.p90_ms, each.p99_ms, each.max_ms)
        shown.add_row(
            name,
            f"{each.frames_per_s:.1f}",
            *("-" if latency_ms is None else f"{latency_ms:.2f}" for latency_ms in latencies),
            str(each.dropped),
            str(each.failed),
        )
    return shown


def as_dict(each: StreamFigures) -> dict[str, object]:
    """For JSON."""
    return asdict(each)

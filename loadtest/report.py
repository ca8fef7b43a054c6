"""From records to figures: what each step achieved, as a table for people and as JSON for programs. Pure.

Requests are reported by when they were due: those of the measured time, also the ones answered in the grace time.
Throughput alone counts answers by when they arrived, so that a queue that drains late doesn't look like capacity.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from rich.box import SIMPLE
from rich.table import Table

from loadtest.arrivals import NS_PER_S
from loadtest.loops import StepRun
from loadtest.records import Phase, RequestRecord
from loadtest.scenario import Step

NS_PER_MS = 1_000_000

_STAGE = re.compile(r"""([A-Za-z0-9_.\-]+)\s*;(?:[^,"]|"[^"]*")*?\bdur=([0-9.]+)""")


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Observed values in milliseconds, by nearest rank: each is one that some request really had."""

    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class ErrorFigures:
    """Failures of one kind: how many, how long they took from when they were due, and what the first one said."""

    count: int
    latency: Percentiles
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures of one step. None means "does not apply", never zero.

    Attributes:
        requests: requests due in the measured time.
        succeeded: those of them with a complete and right answer, in time or in the grace time.
        offered_per_s: requests due per second.
        throughput_per_s: right answers that arrived in the measured time, per second.
        throughput_rows_per_s: their rows, per second.
        goodput_per_s: requests due in the measured time, answered rightly within the objective, per second.
        latency: of the succeeded, from when they were due.
        service: of the succeeded, from when they were sent.
        send_lag_p99_ms: how late requests left; a large value means that the generator or its connections were short.
        errors: failures of requests due in the measured time, by label.
        stages_ms: mean of each stage that the answers' `Server-Timing` names, in milliseconds.
    """

    requests: int
    succeeded: int
    offered_per_s: float
    throughput_per_s: float
    throughput_rows_per_s: float
    goodput_per_s: float | None
    latency: Percentiles | None
    service: Percentiles | None
    send_lag_p99_ms: float | None
    errors: Mapping[str, ErrorFigures]
    stages_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step as it was asked for, the rate that it ran at (None in a closed loop), and its figures."""

    step: Step
    rate: float | None
    summary: Summary


def percentiles(durations_ns: Sequence[int]) -> Percentiles | None:
    """Percentiles of durations in nanoseconds, or None for none."""
    if not durations_ns:
        return None
    ranks = np.quantile(np.asarray(durations_ns), (0.5, 0.9, 0.95, 0.99, 0.999, 1.0), method="inverted_cdf")
    return Percentiles(*(float(value) / NS_PER_MS for value in ranks))


def server_stages_ms(header: bytes) -> dict[str, float]:
    """Durations by name, in milliseconds, of one `Server-Timing` header; entries without `dur` are left out."""
    return {name: float(value) for name, value in _STAGE.findall(header.decode("latin-1"))}


def summarise(run: StepRun, objective_ms: float | None = None) -> Summary:
    """The figures of one run.

    Args:
        run: all its records.
        objective_ms: latency in milliseconds up to which an answer counts as goodput, or None for no such figure.
    """
    window = run.window
    measured_s = window.measured_ns / NS_PER_S
    due = [record for record in run.records if window.phase(record.intended_ns) is Phase.MEASURED]
    succeeded = [record for record in due if record.failure is None]
    arrived = [r for r in run.records if r.failure is None and window.phase(r.done_ns) is Phase.MEASURED]
    lag = percentiles([record.send_lag_ns for record in due if record.send_lag_ns is not None])
    goodput = None
    if objective_ms is not None:
        goodput = sum(record.latency_ns <= objective_ms * NS_PER_MS for record in succeeded) / measured_s
    return Summary(
        requests=len(due),
        succeeded=len(succeeded),
        offered_per_s=len(due) / measured_s,
        throughput_per_s=len(arrived) / measured_s,
        throughput_rows_per_s=sum(record.rows for record in arrived) / measured_s,
        goodput_per_s=goodput,
        latency=percentiles([record.latency_ns for record in succeeded]),
        service=percentiles([record.service_ns for record in succeeded if record.service_ns is not None]),
        send_lag_p99_ms=None if lag is None else lag.p99_ms,
        errors=_errors(due, run.examples),
        stages_ms=_mean_stages_ms(succeeded),
    )


def _errors(due: Iterable[RequestRecord], examples: Mapping[str, str]) -> dict[str, ErrorFigures]:
    latencies_ns: defaultdict[str, list[int]] = defaultdict(list)
    for record in due:
        if record.failure is not None:
            latencies_ns[record.error_label].append(record.latency_ns)
    errors = {}
    for label, values in sorted(latencies_ns.items()):
        figures = percentiles(values)
        if figures is not None:
            errors[label] = ErrorFigures(len(values), figures, examples.get(label, ""))
    return errors


def _mean_stages_ms(records: Iterable[RequestRecord]) -> dict[str, float]:
    totals: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for record in records:
        if not record.server_timing:
            continue
        for name, duration_ms in server_stages_ms(record.server_timing).items():
            totals[name] += duration_ms
            counts[name] += 1
    return {name: total / counts[name] for name, total in totals.items()}


def steps_table(title: str, reports: Sequence[StepReport]) -> Table:
    """One line a step, latencies in milliseconds from the due time; rates are per second."""
    table = Table(title=title, box=SIMPLE)
    table.add_column("step")
    for name in ("due/s", "answers/s", "rows/s", "goodput/s", "p50", "p90", "p99", "p99.9", "max", "lag p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("errors")
    for report in reports:
        summary = report.summary
        times: tuple[float | None, ...] = (None,) * 5
        if summary.latency is not None:
            found = summary.latency
            times = (found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms, found.max_ms)
        figures = (
            summary.offered_per_s,
            summary.throughput_per_s,
            summary.throughput_rows_per_s,
            summary.goodput_per_s,
            *times,
            summary.send_lag_p99_ms,
        )
        errors = ", ".join(f"{label}: {error.count}" for label, error in summary.errors.items()) or "none"
        table.add_row(report.step.title, *(_cell(figure) for figure in figures), errors)
    return table


def stages_table(reports: Sequence[StepReport]) -> Table | None:
    """Mean server stages in milliseconds, one line a stage and one column a step; None if no answer told them."""
    names = list(dict.fromkeys(name for report in reports for name in report.summary.stages_ms))
    if not names:
        return None
    table = Table(title="mean server stages, ms", box=SIMPLE)
    table.add_column("stage")
    for report in reports:
        table.add_column(report.step.title, justify="right")
    for name in names:
        table.add_row(name, *(_cell(report.summary.stages_ms.get(name)) for report in reports))
    return table


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def report_json(reports: Sequence[StepReport], about: Mapping[str, object]) -> bytes:
    """The reports as indented JSON; `about` says where and on what they were made."""
    return orjson.dumps({**about, "steps": reports}, option=orjson.OPT_INDENT_2)

"""What each step achieved and what limited it, as tables for people and as JSON for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson
from rich.box import SIMPLE
from rich.table import Table

from loadtest.figures import Summary
from loadtest.limits import Observation, Verdict
from loadtest.scenario import Step


@dataclass(frozen=True, slots=True)
class CpuFigures:
    """CPU time per answer in milliseconds, of all processes of the server and of the generator; None if unknown."""

    server_ms: float | None
    client_ms: float | None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What came of a step.

    Attributes:
        step: as it was asked for.
        rate: that it ran at, in requests per second; None in a closed loop.
        summary: its figures.
        frontends: of the server; None if that is not known.
        seen: what both sides used meanwhile; None if nobody watched.
        cpu: that per answer; None likewise.
        verdict: what limited the step; None likewise.
    """

    step: Step
    rate: float | None
    summary: Summary
    frontends: int | None = None
    seen: Observation | None = None
    cpu: CpuFigures | None = None
    verdict: Verdict | None = None

    @property
    def title(self) -> str:
        """The step's title, with the front ends where they are known."""
        return self.step.title if self.frontends is None else f"N={self.frontends} {self.step.title}"


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
        table.add_row(report.title, *(_cell(figure) for figure in figures), errors)
    return table


def stages_table(reports: Sequence[StepReport]) -> Table | None:
    """Mean server stages in milliseconds, one line a stage and one column a step; None if no answer told them."""
    names = list(dict.fromkeys(name for report in reports for name in report.summary.stages_ms))
    if not names:
        return None
    table = Table(title="mean server stages, ms", box=SIMPLE)
    table.add_column("stage")
    for report in reports:
        table.add_column(report.title, justify="right")
    for name in names:
        table.add_row(name, *(_cell(report.summary.stages_ms.get(name)) for report in reports))
    return table


def limits_table(reports: Sequence[StepReport]) -> Table | None:
    """What both sides used, and what limited each step: one line a step; None if nobody watched."""
    watched = [report for report in reports if report.verdict is not None]
    if not watched:
        return None
    table = Table(title="what limited each step; CPU per answer in ms, processes in cores", box=SIMPLE)
    table.add_column("step")
    for name in ("server CPU", "client CPU", "server processes", "client processes", "busy lanes"):
        table.add_column(name, justify="right")
    table.add_column("limited by")
    for report in watched:
        table.add_row(report.title, *_usage_cells(report))
    return table


def _usage_cells(report: StepReport) -> Iterator[str]:
    seen, cpu, verdict = report.seen, report.cpu, report.verdict
    assert seen is not None
    assert cpu is not None
    assert verdict is not None
    yield _cell(cpu.server_ms, 3)
    yield _cell(cpu.client_ms, 3)
    yield " ".join(f"{load.cores:.2f}" for load in seen.servers) or "-"
    yield " ".join(f"{load.cores:.2f}" for load in seen.clients) or "-"
    lanes = seen.busiest_lanes
    yield "-" if lanes is None else f"{lanes[1]:.0%}"
    yield verdict.limiter.value


def _cell(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.{digits}f}"


def report_json(reports: Sequence[StepReport], about: Mapping[str, object]) -> bytes:
    """The reports as indented JSON; `about` says where and on what they were made."""
    return orjson.dumps({**about, "steps": reports}, option=orjson.OPT_INDENT_2)

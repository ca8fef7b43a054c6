"""What came of building several models: for people a table for each plan, for scripts JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engines.narrator import duration_text
from engines.report import AccuracyReport, BuildReport


class State(Enum):
    """What became of one model."""

    BUILT = "built"
    IN_PLACE = "in place"
    PASSED_OVER = "passed over"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STYLES = {State.FAILED: "red", State.CANCELLED: "yellow"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One model of a build command.

    Attributes:
        model: its name.
        state: what became of it.
        reason: why; empty for one that was built.
        report: of the build, where there was one that succeeded.
    """

    model: str
    state: State
    reason: str = ""
    report: BuildReport | None = None


def exit_status(outcomes: Iterable[Outcome]) -> int:
    """Of the process: 130 if it was interrupted, 1 if a model failed, else 0."""
    states = {outcome.state for outcome in outcomes}
    if State.CANCELLED in states:
        return 130
    return 1 if State.FAILED in states else 0


def to_dicts(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """The outcomes as JSON-able objects."""
    return [
        {
            "model": outcome.model,
            "state": outcome.state.value,
            "reason": outcome.reason,
            "report": None if outcome.report is None else outcome.report.to_content(),
        }
        for outcome in outcomes
    ]


def show(outcome: Outcome, console: Console) -> None:
    """Prints one outcome: a line that the console does not break, and a table for what was compared."""
    report = outcome.report
    if report is None:
        line = f"{outcome.model}: {outcome.state.value}: {outcome.reason}"
        console.print(Text(line, _STYLES.get(outcome.state, "")), soft_wrap=True)
        return
    layers = "" if report.layer_count is None else f", layers {report.layer_count}"
    line = (
        f"{outcome.model}: {report.plan_path} built in {duration_text(report.build_s)}: "
        f"{_mb(report.plan_bytes)}, {report.precision}{layers}, scratch {_scratch(report)}"
    )
    console.print(Text(line), soft_wrap=True)
    if report.accuracy is not None and report.accuracy.buckets:
        console.print(_accuracy(report.accuracy))
    if report.accuracy is not None and report.accuracy.skipped:
        console.print(Text(f"accuracy not checked: {report.accuracy.skipped}", "yellow"), soft_wrap=True)


def _accuracy(accuracy: AccuracyReport) -> Table:
    table = Table("bucket", "profile", "agreement with ONNX Runtime", "largest difference", "in output")
    for bucket in accuracy.buckets:
        table.add_row(
            bucket.bucket,
            str(bucket.profile),
            f"{bucket.cosine:.6f}",
            f"{bucket.largest_difference:.3g}",
            Text(bucket.output),
        )
    return table


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"


def _scratch(report: BuildReport) -> str:
    return ", ".join(map(_mb, report.scratch_bytes)) or _mb(0)

"""The gate's verdict as a table for people and as one JSON object for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from service.bench.compare import Change, Comparison, Verdict
from service.bench.gate import GateResult, Outcome
from service.bench.recording import BATCH, Place, PlaceKind

_STYLES = {Verdict.SLOWER: "bold red", Verdict.FASTER: "green", Verdict.SAME: "", Verdict.UNKNOWN: "yellow"}
_FEW = 8


def changes_table(comparison: Comparison, min_slowdown: float) -> Table:
    """What changed, the slower places first; of layers that did not change none, of stages all."""
    columns = ("bucket", "stage or layer", "was", "is", "ratio", "interval", "verdict")
    table = Table(title=f"slower counts from {min_slowdown:.0%} on, intervals hold together at 95 %")
    for column in columns:
        table.add_column(column, no_wrap=column != "stage or layer", overflow="fold")
    for change in _shown(comparison):
        low, high = change.ratio.low, change.ratio.high
        table.add_row(
            change.place.bucket,
            change.place.name,
            _time(change.was_ns),
            _time(change.now_ns),
            f"{change.ratio.value:.3f}",
            "-" if low is None or high is None else f"{low:.3f} to {high:.3f}",
            change.verdict.value,
            style=_STYLES[change.verdict],
        )
    return table


def notes(result: GateResult) -> Iterator[str]:
    """What a reader of the table must know, a line each."""
    comparison, mismatch = result.comparison, result.mismatch
    if comparison is None:
        return
    if mismatch is None:
        yield "warning: the baseline does not tell its machine; the times compare only if it was this one"
    else:
        for text in mismatch.machine:
            yield f"warning: {text}: the times do not compare"
        for text in mismatch.others:
            yield f"note: {text}"
    if comparison.gone:
        yield f"note: only the baseline has {_listed(comparison.gone)}"
    if comparison.new:
        yield f"note: the baseline lacks {_listed(comparison.new)}"
    if hidden := _hidden(comparison, result.tolerance.min_slowdown):
        yield (
            f"warning: {hidden.place} may take {hidden.ratio.high:.2f} times as long, for noise hides as much; a quiet "
            "machine tells more, then a longer --duration and more --rounds"
        )
    if comparison.of(Verdict.UNKNOWN):
        yield "note: of unknown places there is one value on either side, which cannot be told from noise"


def conclusion(result: GateResult) -> str:
    """The outcome in one sentence."""
    comparison, machine = result.comparison, result.machine
    assert comparison is not None, "without a baseline there is nothing to tell"
    if not comparison.slower:
        return f"nothing got slower, of {len(comparison.changes)} places"
    worst = comparison.slower[0]
    found = (
        f"{len(comparison.slower)} of {len(comparison.changes)} places got slower, {worst.place} the most: "
        f"{worst.ratio.value:.2f} times as long"
    )
    if result.outcome is Outcome.SLOWER or machine is None:
        return found
    return (
        f"undecided: {found}, but the machine itself takes {machine.value:.2f} times as long for the same work as when "
        "the baseline was recorded; wait until it is quiet, or compare in turns with --against-repository"
    )


def to_dict(result: GateResult) -> dict[str, Any]:
    """The comparison as a JSON-able object; times in microseconds per batch."""
    comparison = result.comparison
    assert comparison is not None, "without a baseline there is nothing to tell"
    return {
        "outcome": result.outcome.name.lower(),
        "min_slowdown": result.tolerance.min_slowdown,
        "machine_ratio": result.machine and result.machine.value,
        "notes": list(notes(result)),
        "changes": [
            {
                "bucket": change.place.bucket,
                "kind": change.place.kind.value,
                "name": change.place.name,
                "was_us": change.was_ns / 1e3,
                "now_us": change.now_ns / 1e3,
                "ratio": change.ratio.value,
                "low": change.ratio.low,
                "high": change.ratio.high,
                "verdict": change.verdict.value,
            }
            for change in comparison.changes
        ],
    }


def _shown(comparison: Comparison) -> Iterator[Change]:
    yield from comparison.slower
    yield from comparison.of(Verdict.FASTER)
    for change in comparison.changes:
        if change.verdict is Verdict.SAME and change.place.kind is PlaceKind.STAGE:
            yield change
    yield from comparison.of(Verdict.UNKNOWN)[::-1][:_FEW]


def _hidden(comparison: Comparison, min_slowdown: float) -> Change | None:
    """The whole batch of which least is known, where that is less than twice what counts."""
    wholes = [change for change in comparison.of(Verdict.SAME) if change.place.name == BATCH]
    widest = max(wholes, key=lambda change: change.ratio.high or 0.0, default=None)
    return widest if widest and (widest.ratio.high or 0.0) > 1.0 + 2.0 * min_slowdown else None


def _listed(places: Sequence[Place]) -> str:
    rest = f" and {len(places) - _FEW} more" if len(places) > _FEW else ""
    return ", ".join(map(str, places[:_FEW])) + rest


def _time(duration_ns: float) -> str:
    return f"{duration_ns / 1e6:.3f} ms" if duration_ns >= 1e6 else f"{duration_ns / 1e3:.2f} µs"

"""From the records of a step to its figures, in two steps so that client processes can share one. Pure.

Each process boils its records down to a `Tally`; tallies of processes that ran the same step at the same time are
joined, and summarised together: percentiles are of all requests, not means of each process's percentiles.

Requests are reported by when they were due: those of the measured time, also the ones answered in the grace time.
Throughput alone counts answers by when they arrived, so that a queue that drains late doesn't look like capacity.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtest.arrivals import NS_PER_S
from loadtest.loops import StepRun
from loadtest.records import Phase, RequestRecord

NS_PER_MS = 1_000_000

MAX_TIMED_ANSWERS = 20_000
"""Answers of one process whose `Server-Timing` is read, evenly spread: a mean needs no more, and parsing takes time."""

Durations = npt.NDArray[np.int64]

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
class Tally:
    """What one process saw of a step; durations are int64[requests] in nanoseconds.

    Attributes:
        measured_ns: length of the measured time.
        due: requests due in it.
        latencies: of those that succeeded, from when they were due.
        services: of those, from when they were sent.
        lags: of all that were sent, how late they left.
        arrived: right answers that arrived in the measured time.
        arrived_rows: their rows.
        failures: from when they were due, by label.
        examples: what the first failure of each label said.
        stages: sum in milliseconds and number of answers that told it, by stage of `Server-Timing`.
    """

    measured_ns: int
    due: int
    latencies: Durations
    services: Durations
    lags: Durations
    arrived: int
    arrived_rows: int
    failures: Mapping[str, Durations]
    examples: Mapping[str, str]
    stages: Mapping[str, tuple[float, int]]


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


def percentiles(durations_ns: Sequence[int] | Durations) -> Percentiles | None:
    """Percentiles of durations in nanoseconds, or None for none."""
    if not len(durations_ns):
        return None
    ranks = np.quantile(np.asarray(durations_ns), (0.5, 0.9, 0.95, 0.99, 0.999, 1.0), method="inverted_cdf")
    return Percentiles(*(float(value) / NS_PER_MS for value in ranks))


def server_stages_ms(header: bytes) -> dict[str, float]:
    """Durations by name, in milliseconds, of one `Server-Timing` header; entries without `dur` are left out."""
    return {name: float(value) for name, value in _STAGE.findall(header.decode("latin-1"))}


def tally(run: StepRun) -> Tally:
    """What one process saw, from all its records."""
    window = run.window
    due = [record for record in run.records if window.phase(record.intended_ns) is Phase.MEASURED]
    succeeded = [record for record in due if record.failure is None]
    arrived = [r for r in run.records if r.failure is None and window.phase(r.done_ns) is Phase.MEASURED]
    failures: defaultdict[str, list[int]] = defaultdict(list)
    for record in due:
        if record.failure is not None:
            failures[record.error_label].append(record.latency_ns)
    return Tally(
        measured_ns=window.measured_ns,
        due=len(due),
        latencies=_durations(record.latency_ns for record in succeeded),
        services=_durations(record.service_ns for record in succeeded if record.service_ns is not None),
        lags=_durations(record.send_lag_ns for record in due if record.send_lag_ns is not None),
        arrived=len(arrived),
        arrived_rows=sum(record.rows for record in arrived),
        failures={label: _durations(values) for label, values in failures.items()},
        examples=run.examples,
        stages=_stages(succeeded),
    )


def joined(tallies: Sequence[Tally]) -> Tally:
    """The tallies of processes that ran shares of one step, as if one process had run it.

    Args:
        tallies: at least one, all of the same measured time.
    """
    labels = dict.fromkeys(label for one in tallies for label in one.failures)
    names = dict.fromkeys(name for one in tallies for name in one.stages)
    stages = {name: [one.stages[name] for one in tallies if name in one.stages] for name in names}
    return Tally(
        measured_ns=tallies[0].measured_ns,
        due=sum(one.due for one in tallies),
        latencies=np.concatenate([one.latencies for one in tallies]),
        services=np.concatenate([one.services for one in tallies]),
        lags=np.concatenate([one.lags for one in tallies]),
        arrived=sum(one.arrived for one in tallies),
        arrived_rows=sum(one.arrived_rows for one in tallies),
        failures={
            label: np.concatenate([one.failures[label] for one in tallies if label in one.failures]) for label in labels
        },
        examples={label: example for one in reversed(tallies) for label, example in one.examples.items()},
        stages={name: (sum(s for s, _ in parts), sum(count for _, count in parts)) for name, parts in stages.items()},
    )


def summary_of(tally: Tally, objective_ms: float | None = None) -> Summary:
    """The figures of a step.

    Args:
        tally: of all processes that ran it.
        objective_ms: latency in milliseconds up to which an answer counts as goodput, or None for no such figure.
    """
    measured_s = tally.measured_ns / NS_PER_S
    lag = percentiles(tally.lags)
    goodput = None
    if objective_ms is not None:
        goodput = int(np.count_nonzero(tally.latencies <= objective_ms * NS_PER_MS)) / measured_s
    errors = {}
    for label, values in sorted(tally.failures.items()):
        figures = percentiles(values)
        if figures is not None:
            errors[label] = ErrorFigures(len(values), figures, tally.examples.get(label, ""))
    return Summary(
        requests=tally.due,
        succeeded=len(tally.latencies),
        offered_per_s=tally.due / measured_s,
        throughput_per_s=tally.arrived / measured_s,
        throughput_rows_per_s=tally.arrived_rows / measured_s,
        goodput_per_s=goodput,
        latency=percentiles(tally.latencies),
        service=percentiles(tally.services),
        send_lag_p99_ms=None if lag is None else lag.p99_ms,
        errors=errors,
        stages_ms={name: total_ms / count for name, (total_ms, count) in tally.stages.items()},
    )


def summarise(run: StepRun, objective_ms: float | None = None) -> Summary:
    """The figures of a step that one process ran; see `summary_of`."""
    return summary_of(tally(run), objective_ms)


def _durations(values: Iterable[int]) -> Durations:
    return np.fromiter(values, dtype=np.int64)


def _stages(records: Sequence[RequestRecord]) -> dict[str, tuple[float, int]]:
    totals: defaultdict[str, list[float]] = defaultdict(list)
    for record in records[:: len(records) // MAX_TIMED_ANSWERS + 1]:
        for name, duration_ms in server_stages_ms(record.server_timing).items():
            totals[name].append(duration_ms)
    return {name: (sum(values), len(values)) for name, values in totals.items()}

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.figures import (
    MAX_TIMED_ANSWERS,
    NS_PER_MS,
    joined,
    percentiles,
    server_stages_ms,
    summarise,
    summary_of,
    tally,
)
from loadtest.loops import StepRun
from loadtest.records import Failure, RequestRecord, Window

MS = NS_PER_MS
# Warm-up [0, 100) ms, measured [100, 1100) ms.
WINDOW = Window(0, 100 * MS, 1000 * MS, 500 * MS)


def record(intended_ms: int, done_ms: int, failure: Failure | None = None, **more: object) -> RequestRecord:
    fields: dict[str, object] = {"sent_ns": intended_ms * MS, "status": 200, "rows": 1, "server_timing": b"", **more}
    return RequestRecord(
        intended_ns=intended_ms * MS, first_byte_ns=None, done_ns=done_ms * MS, failure=failure, **fields
    )  # type: ignore[arg-type]


def test_percentiles_are_observed_values() -> None:
    found = percentiles([value * MS for value in range(1, 1001)])
    assert found is not None
    assert (found.p50_ms, found.p90_ms, found.p95_ms, found.p99_ms, found.p999_ms, found.max_ms) == (
        500,
        900,
        950,
        990,
        999,
        1000,
    )


def test_no_percentiles_of_nothing() -> None:
    assert percentiles([]) is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_percentiles_are_nearest_ranks(values: list[int]) -> None:
    found = percentiles(values)
    assert found is not None
    ordered = sorted(values)
    assert found.p50_ms == ordered[math.ceil(0.5 * len(values)) - 1] / MS
    assert found.max_ms == ordered[-1] / MS
    assert found.p50_ms <= found.p90_ms <= found.p95_ms <= found.p99_ms <= found.p999_ms <= found.max_ms
    assert found.p99_ms * MS >= np.percentile(values, 99, method="lower") * (1 - 1e-9)
    assert found.p99_ms * MS <= np.percentile(values, 99, method="higher") * (1 + 1e-9) + 1e-3


@pytest.mark.parametrize(
    ("header", "stages"),
    [
        (b"", {}),
        (b"queue;dur=0.5, compute;dur=2", {"queue": 0.5, "compute": 2.0}),
        (b'a;desc="x, y";dur=1.25,b;dur=3', {"a": 1.25, "b": 3.0}),
        (b"miss, hit;desc=x, c ; dur=4", {"c": 4.0}),
    ],
)
def test_server_timing(header: bytes, stages: dict[str, float]) -> None:
    assert server_stages_ms(header) == stages


def test_phases_decide_what_is_reported() -> None:
    run = StepRun(
        WINDOW,
        [
            record(50, 60),  # all in the warm-up: nowhere
            record(90, 110, rows=4),  # due in the warm-up, answered in time: throughput alone
            record(200, 210),
            record(1090, 1130),  # answered in the grace time: latency alone
        ],
    )
    summary = summarise(run)
    assert (summary.requests, summary.succeeded, summary.offered_per_s) == (2, 2, 2.0)
    assert (summary.throughput_per_s, summary.throughput_rows_per_s) == (2.0, 5.0)
    assert summary.latency is not None
    assert (summary.latency.p50_ms, summary.latency.max_ms) == (10.0, 40.0)
    assert summary.goodput_per_s is None


def test_goodput_takes_answers_within_the_objective() -> None:
    run = StepRun(WINDOW, [record(200, 220), record(200, 221), record(200, 205, Failure.STATUS, status=503)])
    assert summarise(run, objective_ms=20).goodput_per_s == 1.0
    assert summarise(run, objective_ms=1).goodput_per_s == 0.0


def test_latency_is_told_from_due_and_from_send_times() -> None:
    summary = summarise(StepRun(WINDOW, [record(200, 300, sent_ns=270 * MS)]))
    assert summary.latency is not None
    assert summary.service is not None
    assert (summary.latency.p50_ms, summary.service.p50_ms, summary.send_lag_p99_ms) == (100.0, 30.0, 70.0)


def test_errors_are_counted_by_kind_and_stay_out_of_the_latency() -> None:
    run = StepRun(
        WINDOW,
        [
            record(200, 202, Failure.STATUS, status=503),
            record(200, 204, Failure.STATUS, status=503),
            record(200, 900, Failure.UNANSWERED, status=0, sent_ns=None),
            record(50, 60, Failure.TIMEOUT, status=0),
        ],
        {"http 503": "queue full"},
    )
    summary = summarise(run)
    assert {label: error.count for label, error in summary.errors.items()} == {
        "http 503": 2,
        "unanswered at the end": 1,
    }
    assert summary.errors["http 503"].latency.max_ms == 4.0
    assert summary.errors["http 503"].example == "queue full"
    assert (summary.latency, summary.service, summary.succeeded) == (None, None, 0)


def test_stages_are_averaged_over_the_answers_that_tell_them() -> None:
    run = StepRun(
        WINDOW,
        [
            record(200, 210, server_timing=b"queue;dur=1, compute;dur=2"),
            record(200, 210, server_timing=b"queue;dur=3"),
            record(200, 210),
            record(10, 20, server_timing=b"queue;dur=99"),
        ],
    )
    assert summarise(run).stages_ms == {"queue": 2.0, "compute": 2.0}


def test_of_many_answers_the_stages_of_some_are_read() -> None:
    header = b"queue;dur=1.5"
    run = StepRun(WINDOW, [record(200, 210, server_timing=header)] * (MAX_TIMED_ANSWERS + 1))
    assert tally(run).stages == {"queue": (1.5 * (MAX_TIMED_ANSWERS // 2 + 1), MAX_TIMED_ANSWERS // 2 + 1)}


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    due_ms, took_ms = draw(st.integers(0, 1300)), draw(st.integers(0, 400))
    failure = draw(st.sampled_from([None, None, Failure.STATUS, Failure.TIMEOUT]))
    timing = draw(st.sampled_from([b"", b"queue;dur=1", b"queue;dur=3, compute;dur=2"]))
    status = 503 if failure is Failure.STATUS else 200
    return record(due_ms, due_ms + took_ms, failure, rows=draw(st.integers(1, 4)), status=status, server_timing=timing)


@given(st.lists(records(), max_size=60), st.integers(1, 4))
def test_processes_that_share_a_step_are_summarised_as_one(all_records: list[RequestRecord], count: int) -> None:
    examples = {"http 503": "queue full", "timeout": "none"}
    parts = [tally(StepRun(WINDOW, all_records[index::count], examples)) for index in range(count)]
    assert summary_of(joined(parts), 100.0) == summarise(StepRun(WINDOW, all_records, examples), 100.0)


def test_the_first_process_that_saw_a_failure_gives_the_example() -> None:
    runs = [StepRun(WINDOW, [], {"timeout": said}) for said in ("first", "second")]
    assert joined([tally(run) for run in runs]).examples == {"timeout": "first"}

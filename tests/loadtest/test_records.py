from __future__ import annotations

import pytest

from loadtest.records import Failure, Phase, RequestRecord, Window

WINDOW = Window(start_ns=100, warm_up_ns=20, measured_ns=50, grace_ns=30)


@pytest.mark.parametrize(
    ("at_ns", "phase"),
    [
        (100, Phase.WARM_UP),
        (119, Phase.WARM_UP),
        (120, Phase.MEASURED),
        (169, Phase.MEASURED),
        (170, Phase.GRACE),
        (250, Phase.GRACE),
    ],
)
def test_phases(at_ns: int, phase: Phase) -> None:
    assert WINDOW.phase(at_ns) is phase


def test_window_ends() -> None:
    assert (WINDOW.measured_start_ns, WINDOW.end_ns, WINDOW.grace_end_ns) == (120, 170, 200)


def test_latency_counts_from_the_intended_time() -> None:
    record = RequestRecord(10, 40, 45, 50, 200, None, 1)
    assert (record.latency_ns, record.send_lag_ns, record.service_ns) == (40, 30, 10)


def test_a_request_that_never_left_has_a_latency_alone() -> None:
    record = RequestRecord(10, None, None, 50, 0, Failure.UNANSWERED, 1)
    assert (record.latency_ns, record.send_lag_ns, record.service_ns) == (40, None, None)


@pytest.mark.parametrize(
    ("status", "failure", "label"),
    [(200, None, ""), (503, Failure.STATUS, "http 503"), (0, Failure.TIMEOUT, "timeout")],
)
def test_error_labels(status: int, failure: Failure | None, label: str) -> None:
    assert RequestRecord(0, 0, 0, 1, status, failure, 1).error_label == label

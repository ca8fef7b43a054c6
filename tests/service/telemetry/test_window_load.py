"""What a window tells of requests, queue and arrivals, from moments that a test makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.requests import RequestFacts
from service.telemetry.histogram import Histograms
from service.telemetry.snapshot_load import Stage
from service.telemetry.totals import FINE_BOUNDS_NS, FINE_RATIO
from service.telemetry.window_load import arrival_figures, quantile_s, queue_figures, request_figures
from service.units import NS_PER_MS, NS_PER_S
from tests.doubles.watched_model import STAGES_MS, WatchedServer

FACTS = RequestFacts(
    formation=30 * NS_PER_MS, lane_wait=4 * NS_PER_MS, is_json=1, body_bytes=100, answer_bytes=10, encode=NS_PER_MS
)


def test_only_what_happened_in_the_window_counts():
    server = WatchedServer()
    model = server.add()
    model.answer(9.0, rows=50)
    model.recorder.record_failure("timeout")
    server.pass_seconds(1)
    model.answer(10.5, rows=3)
    model.recorder.record_failure("overloaded")
    server.pass_seconds(1)
    figures = request_figures(server.history.span("m", 60.0))
    assert (figures.rows, figures.duration.count) == (3, 1)
    assert dict(figures.failures) == {"overloaded": 1}


def test_stages_are_told_apart_and_sum_to_the_whole():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(1)
    model.answer(10.5, facts=FACTS)
    model.answer(10.7, facts=FACTS)
    server.pass_seconds(1)
    figures = request_figures(server.history.span("m", 60.0))
    means_ms = {stage: (durations.mean_s or 0.0) * 1000 for stage, durations in figures.stages.items()}
    assert means_ms == pytest.approx(
        {
            Stage.READ: 1,
            Stage.PARSE: 2,
            Stage.PREPARE: 3,
            Stage.FORMATION: 30,
            Stage.BACKLOG: 40 - 30 + 4,
            Stage.DISPATCH: 5,
            Stage.H2D: 6 - 4,
            Stage.COMPUTE: 70,
            Stage.D2H: 8,
            Stage.COMPLETE: 9,
            Stage.RENDER: 10,
            Stage.SEND: 11,
        }
    )
    assert sum(means_ms.values()) == pytest.approx(sum(STAGES_MS))
    assert figures.duration.sum_s == pytest.approx(2 * sum(STAGES_MS) / 1000)


def test_little_s_law_holds_between_figures_that_are_counted_apart():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(1)
    for tenth in range(40):
        model.answer(10.2 + tenth / 20)
    server.pass_seconds(2)
    span = server.history.span("m", 60.0)
    figures = request_figures(span)
    throughput = figures.duration.count / span.duration_s
    assert figures.in_flight_mean == pytest.approx(throughput * (figures.duration.mean_s or 0.0))


def test_payloads_are_means_and_nothing_is_told_of_none():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(1)
    model.answer(10.5, facts=FACTS)
    model.answer(10.6)
    server.pass_seconds(1)
    figures = request_figures(server.history.span("m", 60.0))
    assert (figures.json_share, figures.body_bytes_mean, figures.answer_bytes_mean) == (0.5, 50.0, 5.0)
    idle = request_figures(server.history.span("m", 0.5 + 0.5))
    assert (idle.json_share, idle.duration.count, dict(idle.stages)) == (None, 0, {})
    assert (idle.duration.p50_s, idle.duration.mean_s) == (None, None)


@given(st.lists(st.integers(30_000, 50 * NS_PER_S), min_size=1, max_size=50), st.sampled_from([0.5, 0.99]))
def test_quantiles_are_right_to_the_width_of_an_interval(durations_ns, share):
    fine = Histograms.empty(FINE_BOUNDS_NS).plus(np.array(durations_ns)[:, np.newaxis])
    exact_s = float(np.quantile(durations_ns, share, method="inverted_cdf")) / NS_PER_S
    told_s = quantile_s(fine, share)
    assert told_s is not None
    assert exact_s / FINE_RATIO <= told_s <= exact_s * FINE_RATIO


def test_a_quantile_beyond_the_last_bound_is_that_bound():
    fine = Histograms.empty(FINE_BOUNDS_NS).plus(np.array([[10**13]]))
    assert quantile_s(fine, 0.5) == FINE_BOUNDS_NS[-1] / NS_PER_S


def test_the_queue_s_mean_and_trend():
    server = WatchedServer()
    model = server.add()
    for second in range(8):
        server.pass_seconds(1)
        for _ in range(2):
            model.activity.waiting.enter(int((11 + second) * NS_PER_S))
    queue = queue_figures(server.history.span("m", 60.0))
    assert queue.depth_mean == pytest.approx(np.mean([0, 2, 4, 6, 8, 10, 12, 14]))
    assert queue.depth_slope_per_s is not None
    slope = queue.depth_slope_per_s
    assert slope.value == pytest.approx(2.0)
    assert slope.low == pytest.approx(slope.high)


def test_a_short_window_tells_no_trend():
    server = WatchedServer()
    server.add()
    server.pass_seconds(3)
    assert queue_figures(server.history.span("m", 60.0)).depth_slope_per_s is None


def test_arrivals_are_told_from_the_window_s_beginning():
    server = WatchedServer()
    model = server.add()
    arrivals = model.activity.arrivals
    arrivals.add(9 * NS_PER_S, 1, (), received_ns=9 * NS_PER_S)
    server.pass_seconds(1)
    for at_s, rows in ((10.25, 1), (10.5, 2), (10.75, 4)):
        arrivals.add(int(at_s * NS_PER_S), rows, (7,), received_ns=int(at_s * NS_PER_S))
    server.pass_seconds(1)
    figures = arrival_figures(server.history.span("m", 60.0))
    assert figures.rows_per_s == pytest.approx(7 / 2)
    assert [(arrival.at_s, arrival.rows, arrival.dims) for arrival in figures.log] == [
        (0.25, 1, (7,)),
        (0.5, 2, (7,)),
        (0.75, 4, (7,)),
    ]


@pytest.mark.parametrize(("gaps", "expected"), [([1.0] * 9, 0.0), ([0.0] * 8 + [8.0], 8.0)])
def test_dispersion_of_the_gaps(gaps, expected):
    server = WatchedServer()
    arrivals = server.add().activity.arrivals
    arrivals.add(10 * NS_PER_S, 1, (), received_ns=10 * NS_PER_S)
    server.pass_seconds(1)
    for at_s in 10 + np.cumsum(gaps):
        arrivals.add(int(at_s * NS_PER_S), 1, (), received_ns=int(at_s * NS_PER_S))
    server.pass_seconds(12)
    assert arrival_figures(server.history.span("m", 60.0)).gap_cv2 == pytest.approx(expected)


def test_one_gap_has_no_dispersion():
    server = WatchedServer()
    server.add()
    server.pass_seconds(2)
    assert arrival_figures(server.history.span("m", 60.0)).gap_cv2 is None

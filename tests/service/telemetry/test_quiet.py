"""Which part of the kept moments makes a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.diagnosis.rules.bursty_arrivals import BURSTY
from service.telemetry.activity import Occupancy, OccupancyMarks
from service.telemetry.assemble import Surroundings, take_snapshot
from service.telemetry.quiet import LEAST_QUIET_S, experiment_share, quiet_range
from tests.doubles.watched_model import WatchedServer

SURROUNDINGS = Surroundings(pool_threads=1, cpu_count=2.0)


@dataclass(frozen=True)
class At:
    at_ns: int
    experiments: OccupancyMarks


def points(seconds: int, runs: Sequence[tuple[float, float]] = ()) -> list[At]:
    """A moment every second from 0 on; each run lasts from its first number to its second one."""
    made, experiments = [], Occupancy(0)
    changes = sorted([(began, 1) for began, _ in runs] + [(ended, -1) for _, ended in runs])
    for second in range(seconds + 1):
        while changes and changes[0][0] <= second:
            at_s, change = changes.pop(0)
            (experiments.enter if change > 0 else experiments.leave)(int(at_s * 1e9))
        made.append(At(second * 10**9, experiments.marks(second * 10**9)))
    return made


@pytest.mark.parametrize(
    ("seconds", "runs", "duration_s", "window"),
    [
        pytest.param(30, [], 60.0, (0, 30), id="no run"),
        pytest.param(90, [], 60.0, (30, 90), id="no run, more is kept"),
        pytest.param(90, [(10.5, 20.5)], 60.0, (30, 90), id="a run before the window"),
        pytest.param(90, [(40.5, 50.5)], 60.0, (56, 90), id="a run within, and time since"),
        pytest.param(90, [(70.5, 89.5)], 60.0, (10, 70), id="a run that ended only just"),
        pytest.param(90, [(70.5, 99.0)], 60.0, (10, 70), id="a run that is under way"),
        pytest.param(90, [(70.2, 70.6)], 60.0, (76, 90), id="a run between two moments"),
        pytest.param(90, [(40.5, 41.5), (60.5, 89.5)], 60.0, (47, 60), id="two runs"),
        pytest.param(20, [(4.5, 15.5)], 60.0, (0, 4), id="nowhere is much: the longest"),
        pytest.param(20, [(0.0, 30.0)], 10.0, (10, 20), id="nothing but a run"),
        pytest.param(90, [(70.5, 80.5)], 4.0, (86, 90), id="a short window"),
    ],
)
def test_the_latest_stretch_beside_experiments_that_is_long_enough(seconds, runs, duration_s, window):
    chosen = quiet_range(points(seconds, runs), duration_s)
    assert (chosen[0], chosen[-1]) == window


@given(
    st.lists(st.floats(0.0, 100.0), unique=True, max_size=8).map(sorted),
    st.integers(0, 100),
    st.floats(1.0, 120.0),
)
def test_a_window_is_bounded_and_without_experiments_it_ends_now(moments, seconds, duration_s):
    runs = list(zip(moments[::2], moments[1::2], strict=False))
    made = points(seconds, runs)
    chosen = quiet_range(made, duration_s)
    first, last = made[chosen[0]], made[chosen[-1]]
    assert last.at_ns - first.at_ns <= duration_s * 1e9
    if not runs or experiment_share(first, last) > 0:
        assert chosen[-1] == seconds


def test_the_share_of_experiments_is_that_of_the_time():
    made = points(20, [(10.0, 15.0)])
    assert experiment_share(made[0], made[20]) == pytest.approx(0.25)
    assert experiment_share(made[16], made[20]) == 0.0
    assert experiment_share(made[5], made[5]) == 0.0


def test_pauses_of_a_run_make_no_crowds_of_a_steady_stream():
    """What was once taken for bursty arrivals: a closed loop that exclusive probes hold still again and again."""
    server = WatchedServer(length_s=120)
    model = server.add()
    for _ in range(40):
        for tenth in range(10):
            model.answer(server.now_s + 0.1 * tenth)
        server.pass_seconds(1)
    server.experiments.enter(int((server.now_s - 0.5) * 1e9))
    for second in range(16):
        if second % 4 == 0:
            for hundredth in range(40):
                model.answer(server.now_s + 0.001 * hundredth)
        server.pass_seconds(1)
    during = take_snapshot(server.history.span("m", 30.0), SURROUNDINGS)
    crowded = model.activity.arrivals.marks()
    assert during.arrivals is not None
    assert during.arrivals.gap_cv2 == pytest.approx(0.0, abs=0.01)
    assert max(arrival.at_s for arrival in during.arrivals.log) <= during.window.duration_s
    assert during.window.experiment_share == 0.0
    mean_s = crowded.gaps_s / crowded.requests
    assert crowded.gaps_squared / crowded.requests / mean_s**2 - 1.0 > BURSTY, "the run's arrivals are such a crowd"


def test_a_window_of_nothing_but_a_run_says_so():
    server = WatchedServer()
    server.add()
    server.experiments.enter(10**9)
    server.pass_seconds(int(LEAST_QUIET_S))
    snapshot = take_snapshot(server.history.span("m", 60.0), SURROUNDINGS)
    assert snapshot.window.experiment_share == pytest.approx(1.0)

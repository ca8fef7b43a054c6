"""The gate: every check passed, failed and not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import BottleneckClass
from service.diagnosis.stations import station_loads
from service.diagnosis.validity import fatal, run_checks
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Durations, HostFigures, Stage
from tests.doubles.faults import cold_start
from tests.doubles.snapshots import MODEL, REQUESTS, WINDOW_S, around, bare, healthy, probes, requests, stations


def outcomes(snapshot: MetricsSnapshot) -> dict[str, bool | None]:
    return {check.name: check.is_passed for check in run_checks(snapshot, station_loads(snapshot))}


def window(**changes):
    return replace(healthy().window, **changes)


def with_requests(**changes) -> MetricsSnapshot:
    return healthy(requests=replace(healthy().requests, **changes))


def test_a_healthy_window_passes_everything():
    assert set(outcomes(healthy()).values()) == {True}


def test_what_was_not_recorded_neither_passes_nor_fails():
    found = outcomes(bare())
    assert {name for name, passed in found.items() if passed} == {"window-length", "request-count"}
    assert {passed for name, passed in found.items() if name not in ("window-length", "request-count")} == {None}
    assert not fatal(run_checks(bare(), ()))


@pytest.mark.parametrize(
    ("name", "snapshot"),
    [
        pytest.param("window-length", healthy(window=window(duration_s=4.9, wall_duration_s=4.9)), id="short window"),
        pytest.param("request-count", healthy(requests=requests(count=29)), id="few requests"),
        pytest.param("clock-step", healthy(window=window(wall_duration_s=WINDOW_S - 3.0)), id="clock set back"),
        pytest.param("clock-step", healthy(window=window(wall_duration_s=WINDOW_S + 3.0)), id="clock set forth"),
        pytest.param("readiness", healthy(window=window(ready_before_s=-1.0)), id="ready within"),
        pytest.param("experiments", healthy(window=window(experiment_share=0.01)), id="probes held requests back"),
        pytest.param("stage-sum", with_requests(duration=Durations(REQUESTS, REQUESTS * 1.6e-3)), id="time is missing"),
        pytest.param("little", with_requests(in_flight_mean=17.0), id="too many in flight"),
        pytest.param("little", with_requests(in_flight_mean=12.0), id="too few in flight"),
        pytest.param("utilisation", healthy(stations=stations(h2d=1.1)), id="busier than time passed"),
        pytest.param("ceiling", healthy(probes=probes(lane_rates={2: around(8_000)})), id="more answered than can be"),
    ],
)
def test_failures_that_make_the_window_worthless(name, snapshot):
    checks = run_checks(snapshot, station_loads(snapshot))
    failed = [check for check in checks if check.is_passed is False]
    assert name in {check.name for check in fatal(checks)}
    assert all(check.mend and check.evidence for check in failed)


@pytest.mark.parametrize(
    ("name", "snapshot", "kind"),
    [
        ("warm-up", cold_start(), BottleneckClass.COLD_START),
        ("throttling", healthy(host=HostFigures(throttled_time_ratio=0.2)), BottleneckClass.CPU_STARVED),
    ],
)
def test_failures_that_have_a_class_of_their_own(name, snapshot, kind):
    checks = run_checks(snapshot, station_loads(snapshot))
    (failed,) = [check for check in checks if check.is_passed is False]
    assert (failed.name, failed.named_by) == (name, kind)
    assert not fatal(checks)


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(with_requests(in_flight_mean=16.4), id="N within a tenth"),
        pytest.param(healthy(window=window(wall_duration_s=WINDOW_S + 0.5)), id="clock within 1 %"),
        pytest.param(healthy(stations=stations(device=1.04)), id="rounding of busy time"),
        pytest.param(
            healthy(
                probes=probes(lane_rates={2: around(8_000)}),
                model=replace(MODEL, dim_names=("length",), dim_sizes=((8,),)),
            ),
            id="short rows pass the ceiling of long ones",
        ),
    ],
)
def test_tolerances(snapshot):
    assert False not in outcomes(snapshot).values()


def test_stages_are_not_summed_where_one_is_missing():
    stages = {stage: one for stage, one in healthy().requests.stages.items() if stage is not Stage.SEND}
    assert outcomes(with_requests(stages=stages))["stage-sum"] is None

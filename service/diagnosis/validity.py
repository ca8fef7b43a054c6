"""The gate: whether a window can be judged at all. A wrong verdict is worse than none.

Thresholds and their sources: 30 requests and N = X * R within 10 % (taxonomy 2.3 and 2.4), 5 s (perf_analyzer's
measurement window), stages that sum to the whole within 1 % (the server's own invariant), 1 % for what may disturb.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.diagnosis.finding import BottleneckClass, Evidence, percent, seconds
from service.diagnosis.stations import LITTLE_TOLERANCE, StationLoad, little_error
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import BucketUse
from service.telemetry.snapshot_load import Stage

MIN_WINDOW_S = 5.0
MIN_REQUESTS = 30
STAGE_SUM_TOLERANCE = 0.01
CLOCK_TOLERANCE = 0.01
MIN_CLOCK_STEP_S = 0.1
UTILISATION_TOLERANCE = 0.05
CEILING_TOLERANCE = 0.10
MAX_COLD_SHARE = 0.01
MAX_THROTTLED_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition of a valid window.

    Attributes:
        name: short and stable.
        is_passed: None where what it needs was not recorded.
        detail: what was found.
        mend: what to do where it failed.
        evidence: the number; None where it was not recorded.
        named_by: the class that names what failed; None where a failure makes the whole window worthless.
    """

    name: str
    is_passed: bool | None
    detail: str
    mend: str = ""
    evidence: Evidence | None = None
    named_by: BottleneckClass | None = None


def run_checks(snapshot: MetricsSnapshot, loads: Sequence[StationLoad]) -> tuple[Check, ...]:
    """Every check, in a fixed order."""
    return (
        _window_length(snapshot),
        _request_count(snapshot),
        _clock_step(snapshot),
        _readiness(snapshot),
        _experiments(snapshot),
        _stage_sum(snapshot),
        _little(snapshot),
        _utilisations(loads),
        _ceiling(snapshot),
        _warm_up(snapshot),
        _throttling(snapshot),
    )


def fatal(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The failures that no other class names: with one of them nothing can be said of the window."""
    return tuple(check for check in checks if check.is_passed is False and check.named_by is None)


def _window_length(snapshot: MetricsSnapshot) -> Check:
    duration_s = snapshot.window.duration_s
    return Check(
        name="window-length",
        is_passed=duration_s >= MIN_WINDOW_S,
        detail=f"the window is {seconds(duration_s)} long, at least {seconds(MIN_WINDOW_S)} are needed",
        mend="wait, or ask for a longer window",
        evidence=Evidence("window", duration_s, "s", MIN_WINDOW_S),
    )


def _request_count(snapshot: MetricsSnapshot) -> Check:
    count = snapshot.requests.duration.count
    return Check(
        name="request-count",
        is_passed=count >= MIN_REQUESTS,
        detail=f"{count} requests were answered, at least {MIN_REQUESTS} are needed",
        mend="send requests, or take a longer window",
        evidence=Evidence("answered requests", float(count), "requests", float(MIN_REQUESTS)),
    )


def _clock_step(snapshot: MetricsSnapshot) -> Check:
    wall_s, duration_s = snapshot.window.wall_duration_s, snapshot.window.duration_s
    if wall_s is None:
        return Check(name="clock-step", is_passed=None, detail="the clock on the wall was not recorded")
    step_s = abs(wall_s - duration_s)
    limit_s = max(MIN_CLOCK_STEP_S, CLOCK_TOLERANCE * duration_s)
    return Check(
        name="clock-step",
        is_passed=step_s <= limit_s,
        detail=f"the clock on the wall moved {seconds(step_s)} against the monotonic one",
        mend="take another window",
        evidence=Evidence("clock step", step_s, "s", limit_s),
    )


def _readiness(snapshot: MetricsSnapshot) -> Check:
    ready_s = snapshot.window.ready_before_s
    if ready_s is None:
        return Check(name="readiness", is_passed=None, detail="when the model became ready was not recorded")
    return Check(
        name="readiness",
        is_passed=ready_s >= 0.0,
        detail="the model became ready within the window"
        if ready_s < 0
        else f"the model was ready {seconds(ready_s)} before the window began",
        mend="take a window that begins later",
        evidence=Evidence("ready before the window", ready_s, "s", 0.0),
    )


def _experiments(snapshot: MetricsSnapshot) -> Check:
    share = snapshot.window.experiment_share
    if share is None:
        return Check(name="experiments", is_passed=None, detail="whether probes ran was not recorded")
    return Check(
        name="experiments",
        is_passed=share <= 0.0,
        detail=f"exclusive probes held requests back, or sent their own, during {percent(share)} of the window",
        mend="take a window that begins some seconds after the run of probes",
        evidence=Evidence("exclusive probes", share, "ratio", 0.0),
    )


def _stage_sum(snapshot: MetricsSnapshot) -> Check:
    total_s = snapshot.requests.duration.sum_s
    if total_s <= 0 or set(snapshot.requests.stages) != set(Stage):
        return Check(name="stage-sum", is_passed=None, detail="not every stage was recorded")
    error = abs(sum(stage.sum_s for stage in snapshot.requests.stages.values()) - total_s) / total_s
    return Check(
        name="stage-sum",
        is_passed=error <= STAGE_SUM_TOLERANCE,
        detail=f"the stages sum to the whole time within {percent(error)}, {percent(STAGE_SUM_TOLERANCE)} are allowed",
        mend="a stage is measured wrongly: report it",
        evidence=Evidence("stages against the whole", error, "ratio", STAGE_SUM_TOLERANCE),
    )


def _little(snapshot: MetricsSnapshot) -> Check:
    error = little_error(snapshot)
    if error is None:
        return Check(name="little", is_passed=None, detail="the requests in flight were not recorded")
    return Check(
        name="little",
        is_passed=error <= LITTLE_TOLERANCE,
        detail=f"N and X * R differ by {percent(error)}, at most {percent(LITTLE_TOLERANCE)} are right",
        mend="take a window of steady load in which few requests fail, and if it stays, report it",
        evidence=Evidence("N against X * R", error, "ratio", LITTLE_TOLERANCE),
    )


def _utilisations(loads: Sequence[StationLoad]) -> Check:
    busiest = max(loads, key=lambda load: load.utilisation, default=None)
    if busiest is None:
        return Check(name="utilisation", is_passed=None, detail="no station was recorded")
    limit = 1.0 + UTILISATION_TOLERANCE
    return Check(
        name="utilisation",
        is_passed=busiest.utilisation <= limit,
        detail=f"{busiest.station.value} is the busiest station, during {percent(busiest.utilisation)} of the window",
        mend="more than all of it is impossible, its busy time is measured wrongly: report it",
        evidence=Evidence(f"{busiest.station.value} utilisation", busiest.utilisation, "ratio", limit),
    )


def _ceiling(snapshot: MetricsSnapshot) -> Check:
    lanes = snapshot.device.lanes if snapshot.device else None
    ceiling = snapshot.probes.lane_rates.get(lanes) if lanes is not None else None
    if ceiling is None:
        return Check(name="ceiling", is_passed=None, detail="probe P4 did not run with the present number of lanes")
    limit = ceiling.high * (1.0 + CEILING_TOLERANCE)
    return Check(
        name="ceiling",
        # Batches of smaller dims may pass what the largest ones reach.
        is_passed=bool(snapshot.model.dim_names) or snapshot.rows_per_s <= limit,
        detail=f"{snapshot.rows_per_s:.4g} rows/s were answered, {ceiling.value:.4g} rows/s are the device's ceiling",
        mend="run probe P4 again: what it found then is less than what the server does now",
        evidence=Evidence("throughput", snapshot.rows_per_s, "rows/s", limit),
    )


def _warm_up(snapshot: MetricsSnapshot) -> Check:
    share = cold_share(snapshot.buckets)
    if share is None:
        return Check(name="warm-up", is_passed=None, detail="cold batches were not recorded")
    return Check(
        name="warm-up",
        is_passed=share <= MAX_COLD_SHARE,
        detail=f"first batches took {percent(share)} of the device's time",
        mend="take a window without them",
        evidence=Evidence("time of cold batches", share, "ratio", MAX_COLD_SHARE),
        named_by=BottleneckClass.COLD_START,
    )


def cold_share(buckets: Sequence[BucketUse]) -> float | None:
    """Share of the device's time that first batches took; None where it was not recorded."""
    recorded = [use for use in buckets if use.cold is not None and use.compute is not None]
    total_s = sum(use.compute.sum_s for use in recorded if use.compute)
    if total_s <= 0:
        return None
    return sum(use.cold.sum_s for use in recorded if use.cold) / total_s


def _throttling(snapshot: MetricsSnapshot) -> Check:
    share = snapshot.host.throttled_time_ratio
    if share is None:
        return Check(name="throttling", is_passed=None, detail="the cgroup tells nothing of throttling")
    return Check(
        name="throttling",
        is_passed=share <= MAX_THROTTLED_SHARE,
        detail=f"the container's quota held the process still during {percent(share)} of the window",
        mend="raise the quota",
        evidence=Evidence("throttled time", share, "ratio", MAX_THROTTLED_SHARE),
        named_by=BottleneckClass.CPU_STARVED,
    )

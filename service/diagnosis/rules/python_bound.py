"""python-bound: the interpreter limits: the event loop, its lock, or JSON.

Three forms, each by its own evidence (taxonomy class 18): the event loop is the limiter, loaded above 0.7 in CPU
seconds; parsing and rendering JSON are a tenth of the latency, the wait for the loop not counted; threads wait for the
interpreter's lock more than a fifth of the time, and the loop runs more than 10 ms late. A loop that is late without
either is held up by something else: cpu-starved says by what. With front ends in processes of their own, the busiest of
them speaks, or the engine behind them where that is the fuller one.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    Missing,
    Verdict,
    percent,
    refuted,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import at_most, latency_gain, throughput_gain, throughput_without
from service.diagnosis.misconceptions import COMPUTE_IS_NOT_LATENCY
from service.diagnosis.observed import rows_per_request
from service.diagnosis.stations import SATURATED_LOAD, StationLoad, limiter, station_loads
from service.diagnosis.validity import MAX_THROTTLED_SHARE
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.PYTHON_BOUND
LONG_CODEC = 0.1
MOSTLY_JSON = 0.5
LOOPS = (Station.EVENT_LOOP, Station.ENGINE_LOOP)
LONG_GIL_WAIT = 0.2
LATE_S = 0.01

BINARY = Fix(
    "send and ask for binary tensors, and render with as few floats as callers need",
    command='Inference-Header-Content-Length, or binary_data=True in tritonclient; see "The wire" in docs/tuning.md',
)


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether Python limits the server."""
    loop = _fullest_loop(station_loads(snapshot))
    codec = snapshot.stage_share(Stage.PARSE, Stage.RENDER)
    if loop is None or codec is None:
        return unrecorded(KIND, "the event loop's CPU time, and the stages parse and render")
    work = _work_share(snapshot, loop, codec)
    evidence = _evidence(snapshot, loop, codec, work)
    gil = snapshot.host.gil_wait_ratio or 0.0
    if limiter(station_loads(snapshot)) == loop and loop.load >= SATURATED_LOAD:
        return _saturated(snapshot, loop, work, evidence)
    if work >= LONG_CODEC and (snapshot.requests.json_share or 0.0) >= MOSTLY_JSON:
        return _json(snapshot, codec, work, evidence)
    is_late = (snapshot.host.loop_lag_p99_s or 0.0) > LATE_S
    # Without quota everything is late and waits: that is cpu-starved.
    has_quota = (snapshot.host.throttled_period_ratio or 0.0) <= MAX_THROTTLED_SHARE
    if is_late and has_quota and gil > LONG_GIL_WAIT:
        return _lock(snapshot, gil, evidence)
    if is_late and snapshot.host.throttled_period_ratio is None:
        return unverified(
            KIND,
            f"the event loop runs late although it is only {percent(loop.load)} loaded",
            *evidence,
            missing=(Missing("whether the container's quota or another process takes its core", "P13"),),
        )
    return refuted(KIND, f"the event loop is {percent(loop.load)} loaded, the codec takes {percent(work)}", *evidence)


def _fullest_loop(loads: Sequence[StationLoad]) -> StationLoad | None:
    return max((load for load in loads if load.station in LOOPS), key=lambda load: load.load, default=None)


def _work_share(snapshot: MetricsSnapshot, loop: StationLoad, codec: float) -> float:
    """Share of the latency that parsing and rendering work, at most what the loop worked on a request at all."""
    most_s = loop.service_s * rows_per_request(snapshot)
    if snapshot.probes.json_codec is not None and (snapshot.requests.json_share or 0.0) >= MOSTLY_JSON:
        most_s = min(most_s, snapshot.probes.json_codec.value)
    return min(codec, most_s / snapshot.latency_s) if snapshot.latency_s else codec


def _evidence(snapshot: MetricsSnapshot, loop: StationLoad, codec: float, work: float) -> tuple[Evidence, ...]:
    told = (
        ("requests in JSON", snapshot.requests.json_share, "ratio", MOSTLY_JSON),
        ("wait for the interpreter's lock", snapshot.host.gil_wait_ratio, "ratio", LONG_GIL_WAIT),
        ("lateness of the event loop, 99th percentile", snapshot.host.loop_lag_p99_s, "s", LATE_S),
    )
    return (
        Evidence("event loop load", loop.load, "ratio", SATURATED_LOAD),
        Evidence("work of parsing and rendering, of the latency", work, "ratio", LONG_CODEC),
        Evidence("parse and render with their waits, of the latency", codec, "ratio"),
        *(Evidence(name, value, unit, threshold) for name, value, unit, threshold in told if value is not None),
    )


def _saturated(snapshot: MetricsSnapshot, loop: StationLoad, work: float, evidence: tuple[Evidence, ...]) -> Finding:
    is_json = (snapshot.requests.json_share or 0.0) >= MOSTLY_JSON
    work_s = work * (snapshot.latency_s or 0.0) / rows_per_request(snapshot)
    is_codec = is_json and work_s >= 0.5 * loop.service_s
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{_name(snapshot, loop)} limits: it is {percent(loop.load)} loaded and would take at most "
        f"{loop.capacity_rows_per_s:.4g} rows/s",
        evidence=evidence,
        gain=_loop_gain(snapshot, loop),
        fix=BINARY if is_codec else _more_loops(snapshot, loop),
        verify="the event loop's CPU seconds per row must fall, and rows per second must grow",
        note=COMPUTE_IS_NOT_LATENCY,
    )


def _name(snapshot: MetricsSnapshot, loop: StationLoad) -> str:
    if loop.station is Station.ENGINE_LOOP:
        return "the event loop of the engine"
    front_ends = snapshot.host.frontends
    return f"the busiest of {front_ends} front ends" if front_ends > 1 else "the event loop"


def _more_loops(snapshot: MetricsSnapshot, loop: StationLoad) -> Fix:
    if loop.station is Station.ENGINE_LOOP:
        return Fix("send several rows per request, or run more servers side by side: one engine schedules for all")
    if not snapshot.host.frontends:
        return Fix(
            "let processes of their own read and parse, or send several rows per request",
            command="inferlane serve --frontends 2",
        )
    more = 2 * snapshot.host.frontends
    return Fix(
        "start more front ends, and spread connections over them: clients that keep many open fill none alone",
        command=f"inferlane serve --frontends {more}",
    )


def _loop_gain(snapshot: MetricsSnapshot, loop: StationLoad) -> Gain | None:
    """With binary tensors where probe P11 timed both; else at most what the next station allows."""
    json, binary = snapshot.probes.json_codec, snapshot.probes.binary_codec
    share, loads = snapshot.requests.json_share or 0.0, station_loads(snapshot)
    if json is None or binary is None or share < MOSTLY_JSON:
        return throughput_without(loads, loop.station)
    saved = json.minus(binary).scaled(share / rows_per_request(snapshot) / loop.demand_s)
    factors = (1.0 / (1.0 - min(0.99, max(0.0, end))) for end in (saved.value, saved.low, saved.high))
    return throughput_gain(loads, loop.station, Interval(*factors), GainLabel.MODELLED)


def _json(snapshot: MetricsSnapshot, codec: float, work: float, evidence: tuple[Evidence, ...]) -> Finding:
    share = snapshot.requests.json_share or 0.0
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"parsing and rendering take {percent(codec)} of the latency, and {percent(share)} of the requests are "
        "JSON",
        evidence=evidence,
        gain=_json_gain(snapshot, codec, work, share),
        fix=BINARY,
        verify="the stages parse and render must shrink",
        note=COMPUTE_IS_NOT_LATENCY,
    )


def _json_gain(snapshot: MetricsSnapshot, codec: float, work: float, share: float) -> Gain | None:
    """What probe P11 saved, and the wait for the loop that shrinks with the work; else at most the work."""
    json, binary = snapshot.probes.json_codec, snapshot.probes.binary_codec
    latency_s = snapshot.latency_s or 0.0
    if json is None or binary is None:
        return latency_gain(snapshot, at_most(work * latency_s * share), GainLabel.UPPER_BOUND)
    saved = json.minus(binary).scaled(share)
    with_waits = max(1.0, codec * latency_s / json.value)
    removed = Interval(saved.value * with_waits, saved.low, saved.high * with_waits)
    return latency_gain(snapshot, removed, GainLabel.MODELLED)


def _lock(snapshot: MetricsSnapshot, gil: float, evidence: tuple[Evidence, ...]) -> Finding:
    """What needs the interpreter would be sooner by its wait, at most."""
    stages = (Stage.PARSE, Stage.DISPATCH, Stage.COMPLETE, Stage.RENDER)
    stages_s = sum(snapshot.stage_s(stage) or 0.0 for stage in stages)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"a thread that wants the interpreter waits for it {percent(gil)} of the time",
        evidence=evidence,
        gain=latency_gain(snapshot, at_most(gil * stages_s), GainLabel.UPPER_BOUND),
        fix=Fix("let fewer threads want the interpreter: fewer lanes, or front ends in processes of their own"),
        verify="the wait for the interpreter's lock must fall below a fifth",
    )

"""overload: more is asked than the device can do, so requests wait for each other.

Symptom: waiting for a lane dominates, requests are refused or late, the queue grows. It is told from its neighbours by
the device being the limiter and by the offered rate against its ceiling: at 0.9 of it and above (taxonomy class 1).
Below that a long queue has another cause. Half of the latency, or 1 % of refusals, is where waiting dominates.
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    Verdict,
    percent,
    refuted,
    unrecorded,
)
from service.diagnosis.gains import latency_gain
from service.diagnosis.misconceptions import BUSY_IS_NOT_LOADED, QUEUE_IS_A_SYMPTOM
from service.diagnosis.observed import effective_cost, refused_share, waiting_share
from service.diagnosis.queueing import mean_latency_s
from service.diagnosis.stations import StationLoad, limiter, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.OVERLOAD
OVERLOADED = 0.9
DOMINANT_WAIT = 0.5
MANY_REFUSED = 0.01
COMFORTABLE_LOAD = 0.7
"""The load that the gain is computed for: waiting is short there."""


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the device is asked for more than it can do."""
    loads = station_loads(snapshot)
    device, first, wait = load_of(loads, Station.DEVICE), limiter(loads), waiting_share(snapshot)
    if device is None or first is None or snapshot.arrivals is None or wait is None:
        return unrecorded(KIND, "arrivals, the wait for a lane, and the device's busy time")
    ratio = snapshot.arrivals.rows_per_s / device.capacity_rows_per_s
    refused = refused_share(snapshot)
    evidence = (
        Evidence("offered rows over the device's ceiling", ratio, "ratio", OVERLOADED),
        Evidence("device's ceiling", device.capacity_rows_per_s, "rows/s"),
        Evidence("wait for a lane, of the latency", wait, "ratio", DOMINANT_WAIT),
        Evidence("refused or late requests", refused, "ratio", MANY_REFUSED),
        Evidence("device utilisation", device.utilisation, "ratio"),
    )
    if device.is_doubtful and ratio >= OVERLOADED:
        return unrecorded(KIND, "costs of full batches (the cost table, or probe P4)", *evidence)
    if ratio < OVERLOADED:
        return refuted(
            KIND,
            f"{percent(ratio)} of what the device can do is asked for",
            *evidence,
            note=BUSY_IS_NOT_LOADED if device.utilisation >= OVERLOADED else "",
        )
    if first.station is not Station.DEVICE:
        return refuted(KIND, f"not the device limits, but {first.station.value}", *evidence, note=QUEUE_IS_A_SYMPTOM)
    if wait < DOMINANT_WAIT and refused < MANY_REFUSED and not _is_growing(snapshot):
        return refuted(KIND, "the device is near its ceiling, but nothing waits long", *evidence)
    return _confirmed(snapshot, device, evidence)


def _confirmed(snapshot: MetricsSnapshot, device: StationLoad, evidence: tuple[Evidence, ...]) -> Finding:
    offered = snapshot.arrivals.rows_per_s if snapshot.arrivals else 0.0
    most = COMFORTABLE_LOAD * device.capacity_rows_per_s
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{offered:.4g} rows/s are asked for and the device makes at most {device.capacity_rows_per_s:.4g}; "
        f"{percent(waiting_share(snapshot) or 0.0)} of the latency is waiting, {percent(refused_share(snapshot))} of "
        "the requests were refused or late",
        evidence=evidence,
        gain=_gain(snapshot, device),
        fix=Fix(
            f"add replicas or GPUs until each gets at most {most:.4g} rows/s, or let clients wait less for what will "
            "be late anyway",
            card="[batching]\ndefault_timeout_ms = 100  # what callers wait for: later answers are computed for nobody",
        ),
        verify=f"offered rows must fall below {OVERLOADED:.1f} of the ceiling, and refusals to 0",
        note=QUEUE_IS_A_SYMPTOM,
    )


def _is_growing(snapshot: MetricsSnapshot) -> bool:
    """Whether the queue surely grows, by a tenth of its depth and a request at least over the window."""
    if snapshot.queue is None or snapshot.queue.depth_slope_per_s is None:
        return False
    growth = snapshot.queue.depth_slope_per_s.low * snapshot.window.duration_s
    return growth > max(1.0, 0.1 * snapshot.queue.depth_mean)


def _gain(snapshot: MetricsSnapshot, device: StationLoad) -> Gain | None:
    """The mean latency at a comfortable load, by the closed form; at most all of the waiting goes away."""
    backlog_s, compute_s = snapshot.stage_s(Stage.BACKLOG), snapshot.stage_s(Stage.COMPUTE)
    cost = effective_cost(snapshot)
    if backlog_s is None:
        return None
    if cost is None or compute_s is None:
        return latency_gain(snapshot, Interval(backlog_s, 0.0, backlog_s), GainLabel.UPPER_BOUND)
    then_s = mean_latency_s(COMFORTABLE_LOAD * device.capacity_rows_per_s, cost)
    if then_s is None:
        return latency_gain(snapshot, Interval(backlog_s, 0.0, backlog_s), GainLabel.UPPER_BOUND)
    removed_s = backlog_s + compute_s - then_s
    return latency_gain(snapshot, Interval(removed_s, 0.8 * removed_s, backlog_s + compute_s), GainLabel.MODELLED)

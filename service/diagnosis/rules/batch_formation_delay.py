"""batch-formation-delay: batches are kept open for company while a lane is idle.

Symptom: formation wait above a tenth of the latency, on a device with room (load below 0.7; taxonomy class 2). It is
recorded apart from the wait for a busy lane, which tells the two. A replay of the arrivals without the delay may refute
it: without the delay, batches are smaller, and the wait can move behind them.
"""

from __future__ import annotations

from dataclasses import replace

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    GainLabel,
    Verdict,
    percent,
    refuted,
    seconds,
    unrecorded,
)
from service.diagnosis.gains import latency_gain
from service.diagnosis.misconceptions import DELAY_IS_NOT_THROUGHPUT
from service.diagnosis.observed import MIN_REPLAYED, present_policy
from service.diagnosis.replay import replay
from service.diagnosis.stations import SATURATED_LOAD, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.BATCH_FORMATION_DELAY
LONG_FORMATION = 0.1
CONTRADICTING = 0.25
"""A replay that gives back less than this part of the formation wait speaks against removing the delay."""


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether requests wait for company that they do not need."""
    if snapshot.model.max_queue_delay_s == 0.0:
        return refuted(KIND, "max_queue_delay_ms is 0: no batch waits for company", note=DELAY_IS_NOT_THROUGHPUT)
    share, formation_s = snapshot.stage_share(Stage.FORMATION), snapshot.stage_s(Stage.FORMATION)
    device = load_of(station_loads(snapshot), Station.DEVICE)
    if share is None or formation_s is None or device is None:
        return unrecorded(KIND, "how long batches were kept open, and the device's busy time")
    evidence = (
        Evidence("formation wait, of the latency", share, "ratio", LONG_FORMATION),
        Evidence("formation wait", formation_s, "s"),
        Evidence("max_queue_delay_ms", snapshot.model.max_queue_delay_s, "s"),
        Evidence("device load", device.load, "ratio", SATURATED_LOAD),
    )
    if share <= LONG_FORMATION:
        return refuted(KIND, f"batches were kept open for {percent(share)} of the latency", *evidence)
    if device.is_doubtful:
        return unrecorded(KIND, "costs of full batches (the cost table, or probe P4)", *evidence)
    if device.load >= SATURATED_LOAD:
        return refuted(KIND, f"the device is {percent(device.load)} loaded: there the wait fills batches", *evidence)
    return _judged(snapshot, formation_s, evidence)


def _judged(snapshot: MetricsSnapshot, formation_s: float, evidence: tuple[Evidence, ...]) -> Finding:
    replayed_s = _replayed_s(snapshot)
    if replayed_s is not None and replayed_s < CONTRADICTING * formation_s:
        return refuted(
            KIND,
            f"a replay of the arrivals without the delay shortens the mean by {seconds(replayed_s)} only",
            *evidence,
            Evidence("replay without the delay", replayed_s, "s", CONTRADICTING * formation_s),
        )
    value_s = formation_s if replayed_s is None else replayed_s
    removed = Interval(value_s, min(value_s, formation_s) * 0.75, max(value_s, formation_s))
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{seconds(formation_s)} of {seconds(snapshot.latency_s or 0.0)} are spent waiting for company while a "
        "lane is idle, on a device with room",
        evidence=evidence,
        gain=latency_gain(snapshot, removed, GainLabel.MODELLED),
        fix=Fix("let no batch wait while a lane is idle", card="[batching]\nmax_queue_delay_ms = 0"),
        verify="the formation wait must fall to 0, and throughput must stay",
        note=DELAY_IS_NOT_THROUGHPUT,
    )


def _replayed_s(snapshot: MetricsSnapshot) -> float | None:
    """By how much the mean of the arrivals seen falls without the delay; None where there are too few to replay."""
    policy = present_policy(snapshot)
    log = snapshot.arrivals.log if snapshot.arrivals else ()
    if policy is None or len(log) < MIN_REPLAYED:
        return None
    now, then = replay(log, policy), replay(log, replace(policy, max_delay_s=0.0))
    return None if now is None or then is None else now.mean_s - then.mean_s

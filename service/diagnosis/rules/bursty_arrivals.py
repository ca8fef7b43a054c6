"""bursty-arrivals: requests come in crowds, and the late ones of each crowd wait, on a server that has room on average.

Symptom: gaps between arrivals vary with a squared coefficient above 2 (1 is a Poisson stream), and the limiter is
loaded below 0.7. Confirmed by replaying the arrivals that came, and as many that come independently of each other,
through the same queue: the 99th percentile must fall by a fifth (taxonomy class 25).
"""

from __future__ import annotations

import itertools
import random

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    GainMetric,
    Missing,
    Verdict,
    percent,
    refuted,
    seconds,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import share_gain
from service.diagnosis.observed import MIN_REPLAYED, present_policy
from service.diagnosis.replay import ReplayResult, replay
from service.diagnosis.stations import SATURATED_LOAD, limiter, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Arrival
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.BURSTY_ARRIVALS
BURSTY = 2.0
MUCH = 0.2
_SEED = 20261130


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether crowds of arrivals make the tail long."""
    arrivals, first = snapshot.arrivals, limiter(station_loads(snapshot))
    if arrivals is None or arrivals.gap_cv2 is None or first is None:
        return unrecorded(KIND, "gaps between arrivals, and busy times of the stations")
    evidence = (
        Evidence("squared coefficient of variation of the gaps", arrivals.gap_cv2, "ratio", BURSTY),
        Evidence(f"highest load, of {first.station.value}", first.load, "ratio", SATURATED_LOAD),
    )
    if arrivals.gap_cv2 <= BURSTY:
        return refuted(KIND, f"arrivals vary by {arrivals.gap_cv2:.2g}, a Poisson stream by 1", *evidence)
    if first.is_doubtful:
        return unrecorded(KIND, "costs of full batches (the cost table, or probe P4)", *evidence)
    if first.load >= SATURATED_LOAD:
        return refuted(KIND, f"the server is {percent(first.load)} loaded: it has no room on average", *evidence)
    policy = present_policy(snapshot)
    now = replay(arrivals.log, policy) if policy and len(arrivals.log) >= MIN_REPLAYED else None
    calm = replay(independent(arrivals.log), policy) if policy and now else None
    if now is None or calm is None:
        return unverified(
            KIND,
            "arrivals come in crowds; how long they would wait otherwise is not known",
            *evidence,
            missing=(Missing(f"at least {MIN_REPLAYED} arrivals and a cost table to replay them with", "P15"),),
        )
    return _judged(_gain(snapshot, now, calm), now, calm, evidence)


def _judged(gain: Gain, now: ReplayResult, calm: ReplayResult, symptoms: tuple[Evidence, ...]) -> Finding:
    evidence = (
        *symptoms,
        Evidence("99th percentile of a replay", now.p99_s, "s"),
        Evidence("99th percentile of a replay of independent arrivals", calm.p99_s, "s"),
    )
    if gain.value < MUCH:
        return refuted(
            KIND, f"from independent clients, the 99th percentile would be {percent(gain.value)} less", *evidence
        )
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"arrivals come in crowds: replayed, the 99th percentile is {seconds(now.p99_s)}, from "
        f"independent clients {seconds(calm.p99_s)}",
        evidence=evidence,
        gain=gain,
        fix=Fix(
            "spread requests at their source, keep more capacity than the mean asks for, or let urgent ones overtake",
            card="[batching]\npriority_levels = 2  # and priority 1 for what a person waits for",
        ),
        verify="the 99th percentile must near twice the median",
    )


def independent(log: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """As many arrivals in about the same time, each at a moment of its own: a Poisson stream, always the same one."""
    gap_s = (log[-1].at_s - log[0].at_s) / max(1, len(log) - 1)
    draw = random.Random(_SEED)
    moments_s = itertools.accumulate((draw.expovariate(1.0) * gap_s for _ in log[1:]), initial=log[0].at_s)
    return tuple(Arrival(at_s, one.rows, one.dims) for at_s, one in zip(moments_s, log, strict=True))


def _gain(snapshot: MetricsSnapshot, now: ReplayResult, calm: ReplayResult) -> Gain:
    """Share of the whole 99th percentile, as replayed; at most all that it is above the median."""
    duration = snapshot.requests.duration
    whole_s = max(duration.p99_s or now.p99_s, now.p99_s)
    value = max(0.0, now.p99_s - calm.p99_s) / whole_s
    tail = 1.0 - (duration.p50_s if duration.p50_s is not None else now.p50_s) / whole_s
    return share_gain(Interval(value, 0.5 * value, max(value, tail)), GainLabel.MODELLED, GainMetric.LATENCY_P99)

"""bursty-arrivals: requests come in crowds, and the late ones of each crowd wait, on a server that has room on average.

Symptom: gaps between arrivals vary with a squared coefficient above 2 (1 is a Poisson stream), and the limiter is
loaded below 0.7. Confirmed by replaying the arrivals that came, and the same ones evened out, through the same queue:
the 99th percentile must fall by a fifth (taxonomy class 25).
"""

from __future__ import annotations

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
from service.diagnosis.gains import at_most, share_gain
from service.diagnosis.observed import MIN_REPLAYED, present_policy
from service.diagnosis.replay import ReplayResult, replay
from service.diagnosis.stations import SATURATED_LOAD, limiter, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Arrival

KIND = BottleneckClass.BURSTY_ARRIVALS
BURSTY = 2.0
MUCH = 0.2


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
    even = replay(evened(arrivals.log), policy) if policy and now else None
    if now is None or even is None:
        return unverified(
            KIND,
            "arrivals come in crowds; how long they would wait otherwise is not known",
            *evidence,
            missing=(Missing(f"at least {MIN_REPLAYED} arrivals and a cost table to replay them with", "P15"),),
        )
    return _judged(_gain(snapshot, now, even), now, even, evidence)


def _judged(gain: Gain, now: ReplayResult, even: ReplayResult, symptoms: tuple[Evidence, ...]) -> Finding:
    evidence = (
        *symptoms,
        Evidence("99th percentile of a replay", now.p99_s, "s"),
        Evidence("99th percentile of a replay evened out", even.p99_s, "s"),
    )
    if gain.value < MUCH:
        return refuted(KIND, f"evened out, the 99th percentile would fall by {percent(gain.value)}", *evidence)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"arrivals come in crowds: replayed, the 99th percentile in the queue and on the device is "
        f"{seconds(now.p99_s)}, evened out {seconds(even.p99_s)}",
        evidence=evidence,
        gain=gain,
        fix=Fix(
            "spread requests at their source, keep more capacity than the mean asks for, or let urgent ones overtake",
            card="[batching]\npriority_levels = 2  # and priority 1 for what a person waits for",
        ),
        verify="the 99th percentile must near twice the median",
    )


def evened(log: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """The same arrivals in the same time, at equal distances."""
    step_s = (log[-1].at_s - log[0].at_s) / max(1, len(log) - 1)
    return tuple(Arrival(log[0].at_s + index * step_s, arrival.rows, arrival.dims) for index, arrival in enumerate(log))


def _gain(snapshot: MetricsSnapshot, now: ReplayResult, even: ReplayResult) -> Gain:
    """Share of the whole 99th percentile; the replay's own where that of the requests was not recorded."""
    whole_s = max(snapshot.requests.duration.p99_s or now.p99_s, now.p99_s)
    return share_gain(at_most((now.p99_s - even.p99_s) / whole_s), GainLabel.UPPER_BOUND, GainMetric.LATENCY_P99)

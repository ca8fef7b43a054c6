"""network-payload: bytes on their way to and from the client take much of the time.

Reading bodies and sending answers are a fifth of the latency, or the client sees a fifth more than the server does
(taxonomy class 20). Told from a busy event loop, which delays both as well, by the loop's load and lateness, and from a
busy client by its own CPU.
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    GainLabel,
    Verdict,
    percent,
    refuted,
    unrecorded,
)
from service.diagnosis.gains import at_most, latency_gain
from service.diagnosis.misconceptions import COMPUTE_IS_NOT_LATENCY
from service.diagnosis.stations import SATURATED_LOAD, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station

KIND = BottleneckClass.NETWORK_PAYLOAD
LONG_WAY = 0.2
LATE_S = 0.01
WAKE_UPS = 4.0
"""Times that a request waits for the event loop while it is read and answered, at a generous guess."""
BUSY_CLIENT = 0.9


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether payloads or the network take much of the time."""
    way, latency_s = snapshot.stage_share(Stage.READ, Stage.SEND), snapshot.latency_s
    loop = load_of(station_loads(snapshot), Station.EVENT_LOOP)
    if way is None or latency_s is None or loop is None:
        return unrecorded(KIND, "the stages read and send, and the event loop's CPU time")
    gap_s = _gap_s(snapshot, latency_s)
    gap = gap_s / (latency_s + gap_s)
    evidence = _evidence(snapshot, way, gap)
    if way < LONG_WAY and gap < LONG_WAY:
        return refuted(KIND, f"reading and sending take {percent(way)} of the latency", *evidence)
    if loop.load >= SATURATED_LOAD or _is_lateness(snapshot, max(way * latency_s, gap_s)):
        return refuted(
            KIND,
            "the event loop is late, which lengthens reading and sending whatever the network does",
            *evidence,
            Evidence("event loop load", loop.load, "ratio", SATURATED_LOAD),
        )
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"reading and sending take {percent(way)} of the latency; the client waits {percent(gap)} longer than "
        "the server works",
        evidence=evidence,
        gain=latency_gain(snapshot, at_most(way * latency_s), GainLabel.UPPER_BOUND)
        if way >= LONG_WAY
        else latency_gain(snapshot, at_most(gap_s), GainLabel.UPPER_BOUND),
        fix=Fix(
            "send fewer bytes: media in place of tensors, images near the model's size, binary tensors, only the "
            "outputs that are used; keep connections open, and be near"
        ),
        verify="the stages read and send must shrink, and the client's latency with them",
        note=COMPUTE_IS_NOT_LATENCY,
    )


def _is_lateness(snapshot: MetricsSnapshot, way_s: float) -> bool:
    """Whether the event loop comes so late that reading and sending may take so long for that alone."""
    host = snapshot.host
    if (host.loop_lag_p99_s or 0.0) <= LATE_S:
        return False
    return host.loop_lag_mean_s is None or way_s < WAKE_UPS * host.loop_lag_mean_s


def _gap_s(snapshot: MetricsSnapshot, latency_s: float) -> float:
    """By how much the client waits longer than the server works; 0 where that is its own CPU's doing, or unknown."""
    client = snapshot.client
    if client is None or client.latency_mean_s is None or (client.cpu_busy_ratio or 0.0) > BUSY_CLIENT:
        return 0.0
    return max(0.0, client.latency_mean_s - latency_s)


def _evidence(snapshot: MetricsSnapshot, way: float, gap: float) -> tuple[Evidence, ...]:
    evidence = [
        Evidence("read and send, of the latency", way, "ratio", LONG_WAY),
        Evidence("the client's time beyond the server's, of the client's", gap, "ratio", LONG_WAY),
    ]
    body, answer = snapshot.requests.body_bytes_mean, snapshot.requests.answer_bytes_mean
    if body is not None and answer is not None:
        evidence.append(Evidence("payload per request", body + answer, "bytes"))
    most, used = snapshot.host.nic_bytes_per_s, snapshot.host.nic_used_bytes_per_s
    if most and used is not None:
        evidence.append(Evidence("bandwidth of the network interfaces used", used / most, "ratio"))
    return tuple(evidence)

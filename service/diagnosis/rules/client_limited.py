"""client-limited: the server has room, and its clients ask for no more.

Symptom: no station is loaded above 0.7 and hardly anything waits. A server with few visitors looks alike; told from it
by the number of requests in flight, which a closed loop keeps at its number of clients (variance below half of the
mean; arrivals at random have the mean), or by a load generator that says so, or that is itself out of CPU (locust warns
above 0.9). Confirmed where throughput is below 0.7 of the ceiling and fewer than N* requests are in flight (taxonomy
class 19). A server whose event loop is never idle for want of cores does what it can; one whose requests wait for a
late event loop is held up, whatever its stations say, and so is one whose threads for media wait for cores: only P10
knows its ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    unrecorded,
    unverified,
)
from service.diagnosis.observed import is_held_up, is_loop_never_idle, is_pool_kept_from_cores
from service.diagnosis.stations import (
    SATURATED_LOAD,
    StationLoad,
    knee_requests,
    resources,
    station_loads,
    throughput_at,
)
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.CLIENT_LIMITED
FAR_BELOW = 0.7
CONSTANT = 0.5
BUSY_CLIENT = 0.9


@dataclass(frozen=True, slots=True)
class _Room:
    """What more the server would take: rows per second at most, and the requests in flight now and at the knee."""

    ceiling: Interval
    is_measured: bool
    in_flight: float
    knee: float


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether more requests in flight would be served at hardly more latency."""
    loads = station_loads(snapshot)
    room = _room(snapshot, loads)
    if room is None:
        return unrecorded(KIND, "requests in flight, waits and busy times of the stations")
    busiest = max(resources(loads), key=lambda load: load.load)
    evidence = _evidence(snapshot, busiest, room)
    if busiest.is_doubtful:
        return unrecorded(KIND, "costs of full batches (the cost table, or probe P4)", *evidence)
    if busiest.load >= SATURATED_LOAD:
        return refuted(KIND, f"{busiest.station.value} is {percent(busiest.load)} loaded", *evidence)
    if snapshot.rows_per_s >= FAR_BELOW * room.ceiling.value or room.in_flight >= room.knee:
        return refuted(KIND, f"the clients keep {room.in_flight:.3g} requests in flight, which is enough", *evidence)
    if is_loop_never_idle(snapshot):
        return refuted(KIND, "the event loop works or waits for a core all the time: it has none left", *evidence)
    if is_held_up(snapshot) and not room.is_measured:
        return unverified(
            KIND,
            "no station is loaded, but requests wait for a late event loop: what the server could do is not known",
            *evidence,
            missing=(Missing("what the server makes of as many requests as it takes", "P10"),),
        )
    if is_pool_kept_from_cores(snapshot) and not room.is_measured:
        return unverified(
            KIND,
            "the pool's threads are all taken although they work little: something keeps them from cores",
            *evidence,
            missing=(Missing("what the server makes of as many requests as it takes", "P10"),),
        )
    is_closed = _is_closed(snapshot)
    if is_closed is None:
        return unverified(
            KIND,
            "the server has room; whether its clients wait for answers before they ask again is not known",
            *evidence,
            missing=(Missing("how the number of requests in flight varies", "P10, or the load generator's report"),),
        )
    if not is_closed:
        return refuted(KIND, "requests arrive by themselves, and the server has room for more", *evidence)
    return _confirmed(snapshot, room, evidence)


def _room(snapshot: MetricsSnapshot, loads: Sequence[StationLoad]) -> _Room | None:
    """As probe P10 measured it; else by the bounds that hold for so many in flight as the knee has."""
    knee, in_flight = knee_requests(snapshot, loads), snapshot.requests.in_flight_mean
    if knee is None or in_flight is None:
        return None
    measured = snapshot.probes.http_rows_per_s
    ceiling = measured or throughput_at(snapshot, loads, max(2.0, knee))
    return None if ceiling is None else _Room(ceiling, measured is not None, in_flight, knee)


def _evidence(snapshot: MetricsSnapshot, busiest: StationLoad, room: _Room) -> tuple[Evidence, ...]:
    evidence = [
        Evidence(f"highest load, of {busiest.station.value}", busiest.load, "ratio", SATURATED_LOAD),
        Evidence("throughput over the ceiling", snapshot.rows_per_s / room.ceiling.value, "ratio", FAR_BELOW),
        Evidence("requests in flight", room.in_flight, "requests", room.knee),
    ]
    if snapshot.requests.in_flight_std is not None and room.in_flight:
        dispersion = snapshot.requests.in_flight_std**2 / room.in_flight
        evidence.append(Evidence("variance of the requests in flight over their mean", dispersion, "ratio", CONSTANT))
    if snapshot.client is not None and snapshot.client.cpu_busy_ratio is not None:
        evidence.append(Evidence("load generator's CPU", snapshot.client.cpu_busy_ratio, "ratio", BUSY_CLIENT))
    return tuple(evidence)


def _is_closed(snapshot: MetricsSnapshot) -> bool | None:
    """Whether clients hold the server's throughput down; None if nothing tells."""
    client = snapshot.client
    if client is not None:
        return client.concurrency is not None or (client.cpu_busy_ratio or 0.0) > BUSY_CLIENT
    mean, std = snapshot.requests.in_flight_mean, snapshot.requests.in_flight_std
    return None if not mean or std is None else std**2 / mean <= CONSTANT


def _confirmed(snapshot: MetricsSnapshot, room: _Room, evidence: tuple[Evidence, ...]) -> Finding:
    gains = (
        max(0.0, end / snapshot.rows_per_s - 1.0) for end in (room.ceiling.value, room.ceiling.low, room.ceiling.high)
    )
    value, low, high = gains
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{room.in_flight:.3g} requests are in flight where {room.knee:.3g} would fill the server; it makes "
        f"{snapshot.rows_per_s:.4g} rows/s and could make {room.ceiling.value:.4g}",
        evidence=evidence,
        gain=Gain(
            GainMetric.THROUGHPUT, value, low, high, GainLabel.MEASURED if room.is_measured else GainLabel.MODELLED
        ),
        fix=Fix(
            f"keep about {max(2.0, room.knee):.0f} requests in flight: more clients, or several rows per request",
            command=f"python -m loadtest.bench {snapshot.model.name} --concurrency {max(2.0, room.knee):.0f}",
        ),
        verify="rows per second must grow with the number in flight, at about the same latency",
    )

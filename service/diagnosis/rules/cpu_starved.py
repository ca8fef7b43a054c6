"""cpu-starved: the process does not get the CPU that it needs.

The container's quota ran out in more than 1 % of its periods (taxonomy class 23), or the hypervisor gave more than 5 %
of the CPU to others. Without either, whoever holds the cores: the event loop is what limits, and it either works or
waits for a core nearly all the time, a quarter of it at least waiting. It serves as much as its share of a core allows,
which its load in CPU seconds does not show. Other threads that wait for a core (PSI) may as well wait for each other:
unverified. What it costs is bounded by the time during which everything stood still.
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
    unrecorded,
    unverified,
)
from service.diagnosis.gains import share_gain
from service.diagnosis.observed import is_loop_never_idle
from service.diagnosis.stations import StationLoad, limiter, resources, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import HostFigures, Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.CPU_STARVED
OFTEN_THROTTLED = 0.01
MUCH_STOLEN = 0.05
MUCH_PRESSURE = 0.2
LONG_LOOP_WAIT = 0.25


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether quota or neighbours keep the process from its cores."""
    host = snapshot.host
    if host.throttled_period_ratio is None and host.steal_ratio is None and host.loop_wait_ratio is None:
        return unrecorded(KIND, "throttling of the container and steal of the machine")
    evidence = _evidence(host)
    throttled, stolen = host.throttled_period_ratio or 0.0, host.steal_ratio or 0.0
    if throttled <= OFTEN_THROTTLED and stolen <= MUCH_STOLEN:
        loop = _crowded_loop(snapshot)
        if loop is not None:
            return _crowded(snapshot, loop, evidence)
        if (host.pressure_ratio or 0.0) > MUCH_PRESSURE:
            return unverified(
                KIND,
                f"threads waited for a core {percent(host.pressure_ratio or 0.0)} of the time, and no quota is why",
                *evidence,
                missing=(Missing("whether the server's own threads or other processes hold the cores", "top -H"),),
            )
        return refuted(KIND, "the quota did not run out, and nobody took the cores", *evidence)
    still = max(host.throttled_time_ratio or throttled, stolen)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"the quota ran out in {percent(throttled)} of its periods; others got {percent(stolen)} of the CPU",
        evidence=evidence,
        # Nothing moves while the quota has run out; what waits meanwhile is served late on top.
        gain=share_gain(Interval(still, 0.5 * still, min(1.0, 2.0 * still)), GainLabel.MODELLED),
        fix=Fix(
            "raise the container's CPU quota, or let the server use fewer threads than it has cores",
            command="docker update --cpus 8 CONTAINER, or INFERLANE_CPU_THREADS=4",
        ),
        verify="nr_throttled in the cgroup's cpu.stat must stand still",
    )


def _crowded_loop(snapshot: MetricsSnapshot) -> StationLoad | None:
    """The event loop, where it limits for want of a core."""
    first = limiter(station_loads(snapshot))
    if first is None or first.station is not Station.EVENT_LOOP or not is_loop_never_idle(snapshot):
        return None
    return first if (snapshot.host.loop_wait_ratio or 0.0) >= LONG_LOOP_WAIT else None


def _crowded(snapshot: MetricsSnapshot, loop: StationLoad, evidence: tuple[Evidence, ...]) -> Finding:
    """With a core of its own the loop works while it waits now; the next station caps what comes of it."""
    wait = snapshot.host.loop_wait_ratio or 0.0
    now = loop.utilisation / (loop.utilisation + wait)
    ceiling = now * loop.capacity_rows_per_s
    others = [load.capacity_rows_per_s for load in resources(station_loads(snapshot)) if load is not loop]
    value = max(0.0, min(loop.capacity_rows_per_s, *others) / ceiling - 1.0) if others else 1.0 / now - 1.0
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"the event loop worked {percent(loop.utilisation)} of the time and waited for a core {percent(wait)} "
        f"of it: as it is, it takes at most {ceiling:.4g} rows/s",
        evidence=(*evidence, Evidence("event loop utilisation", loop.utilisation, "ratio")),
        gain=Gain(GainMetric.THROUGHPUT, value, 0.5 * value, value, GainLabel.MODELLED),
        fix=Fix(
            "give the server cores that nobody else uses: load generators and neighbours elsewhere, or fewer threads "
            "of its own than there are cores",
            command="taskset -c 0-3 inferlane serve, or INFERLANE_CPU_THREADS=1",
        ),
        verify="the time in which the event loop waits for a core must near 0 under the same load",
    )


def _evidence(host: HostFigures) -> tuple[Evidence, ...]:
    told = (
        ("periods in which the quota ran out", host.throttled_period_ratio, OFTEN_THROTTLED),
        ("time without any CPU", host.throttled_time_ratio, None),
        ("CPU time given to others", host.steal_ratio, MUCH_STOLEN),
        ("time in which a thread waited for a core", host.pressure_ratio, MUCH_PRESSURE),
        ("time in which the event loop waited for a core", host.loop_wait_ratio, LONG_LOOP_WAIT),
    )
    return tuple(Evidence(name, value, "ratio", threshold) for name, value, threshold in told if value is not None)

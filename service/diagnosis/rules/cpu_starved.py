"""cpu-starved: the process does not get the CPU that it needs.

The container's quota ran out in more than 1 % of its periods (taxonomy class 23), or the hypervisor gave more than 5 %
of the CPU to others. Threads that wait for a core without either (PSI) may as well wait for each other: unverified.
What it costs is bounded by the time during which everything stood still.
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    GainLabel,
    Missing,
    Verdict,
    percent,
    refuted,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import share_gain
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import HostFigures
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.CPU_STARVED
OFTEN_THROTTLED = 0.01
MUCH_STOLEN = 0.05
MUCH_PRESSURE = 0.2


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether quota or neighbours keep the process from its cores."""
    host = snapshot.host
    if host.throttled_period_ratio is None and host.steal_ratio is None:
        return unrecorded(KIND, "throttling of the container and steal of the machine")
    evidence = _evidence(host)
    throttled, stolen = host.throttled_period_ratio or 0.0, host.steal_ratio or 0.0
    if throttled <= OFTEN_THROTTLED and stolen <= MUCH_STOLEN:
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


def _evidence(host: HostFigures) -> tuple[Evidence, ...]:
    told = (
        ("periods in which the quota ran out", host.throttled_period_ratio, OFTEN_THROTTLED),
        ("time without any CPU", host.throttled_time_ratio, None),
        ("CPU time given to others", host.steal_ratio, MUCH_STOLEN),
        ("time in which a thread waited for a core", host.pressure_ratio, MUCH_PRESSURE),
    )
    return tuple(Evidence(name, value, "ratio", threshold) for name, value, threshold in told if value is not None)

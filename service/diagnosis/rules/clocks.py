"""clocks: the GPU runs below its clock, for power, for heat, or because it was idle before.

Held down: the SMs' clock is below 0.95 of its highest while they work, and NVML names what holds it. Ramping up: probe
P12 saw batches after a pause as long as the traffic's take 1.025 times as long (trtexec's 2.5 % for unstable times;
taxonomy class 21). Only what computes gets faster by the clock; memory has one of its own.
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
    unverified,
)
from service.diagnosis.gains import device_gain
from service.diagnosis.misconceptions import UTILISATION_IS_NOT_EFFICIENCY
from service.diagnosis.observed import batch_count, is_on_gpu
from service.diagnosis.stations import load_of, station_loads
from service.telemetry.gpu_figures import ClockEvent
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.CLOCKS
LOW_CLOCK = 0.95
OFTEN = 0.1
"""Share of the samples in which something must hold the clock down to be the cause."""
SLOW_START = 1.025


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the device computes slower than it could for reasons of its clock."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: the server reads no clocks there")
    clock = snapshot.gpu.sm_clock_ratio if snapshot.gpu else None
    idle = _after_idle(snapshot)
    if idle is not None and idle.low > SLOW_START:
        return _ramping(snapshot, idle)
    if snapshot.gpu is None or clock is None:
        return unverified(
            KIND,
            "the clock of the SMs is not known",
            missing=(Missing("clocks and what holds them down", "NVML: INFERLANE_GPU_METRICS_ENABLED=true, or P12"),),
        )
    causes = {
        event: share
        for event, share in snapshot.gpu.clock_events.items()
        if event is not ClockEvent.IDLE and share >= OFTEN
    }
    evidence = (
        Evidence("clock of the SMs over the highest", clock, "ratio", LOW_CLOCK),
        *(Evidence(f"held down by {event.value}", share, "ratio", OFTEN) for event, share in causes.items()),
        *(
            ()
            if idle is None
            else (Evidence("time of a batch after the usual pause", idle.value, "ratio", SLOW_START),)
        ),
    )
    if clock >= LOW_CLOCK:
        return refuted(KIND, f"the SMs run at {percent(clock)} of their highest clock", *evidence)
    if not causes:
        return unverified(
            KIND,
            f"the SMs run at {percent(clock)} of their highest clock, and nothing is named that holds them down",
            *evidence,
            missing=(Missing("batches after pauses of different length", "P12"),),
        )
    return _held_down(snapshot, clock, tuple(causes), evidence)


def _after_idle(snapshot: MetricsSnapshot) -> Interval | None:
    """Slowness of a batch after the pause that is usual between two; None if P12 did not try so long a one."""
    device, batches = load_of(station_loads(snapshot), Station.DEVICE), batch_count(snapshot)
    if device is None or not batches:
        return None
    pause_s = snapshot.window.duration_s * max(0.0, 1.0 - device.utilisation) / batches
    tried = [idle_s for idle_s in snapshot.probes.idle_factors if idle_s <= pause_s]
    return snapshot.probes.idle_factors[max(tried)] if tried else None


def _ramping(snapshot: MetricsSnapshot, idle: Interval) -> Finding:
    saved = Interval(1 - 1 / idle.value, 1 - 1 / idle.low, 1 - 1 / idle.high)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"after the pauses of this traffic a batch takes {idle.value:.2f} times as long as in a row: "
        "the clocks ramp up anew",
        evidence=(Evidence("time of a batch after the usual pause", idle.value, "ratio", SLOW_START),),
        gain=device_gain(snapshot, station_loads(snapshot), saved, GainLabel.MEASURED),
        fix=Fix("lock the clocks", command="nvidia-smi --lock-gpu-clocks=MIN,MAX"),
        verify="the device's time per batch must be that of a busy server",
    )


def _held_down(
    snapshot: MetricsSnapshot, clock: float, causes: tuple[ClockEvent, ...], evidence: tuple[Evidence, ...]
) -> Finding:
    saved = 1.0 - clock
    names = ", ".join(event.value for event in causes)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"the SMs run at {percent(clock)} of their highest clock, held down by {names}",
        evidence=evidence,
        gain=device_gain(snapshot, station_loads(snapshot), Interval(saved, 0.0, saved), GainLabel.UPPER_BOUND),
        fix=Fix(
            "give the GPU the power and the cooling that it asks for, or reset what was set",
            command="nvidia-smi -q -d POWER,CLOCK,TEMPERATURE",
        ),
        verify="inferlane_gpu_clock_event must be 0 for these reasons under load",
        note=UTILISATION_IS_NOT_EFFICIENCY,
    )

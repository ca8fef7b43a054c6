"""interference: somebody else uses the device, and batches take longer in traffic than alone.

Probe P14 runs the same batches with and without traffic, at equal clocks and equal lanes, so that neither the model's
own lanes nor the clocks are taken for others. Confirmed above a factor of 1.1 (taxonomy class 22).
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
    refuted,
    unverified,
)
from service.diagnosis.gains import device_gain
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.INTERFERENCE
SLOWED = 1.1


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether others slow the device down."""
    factor = snapshot.probes.interference
    others = snapshot.gpu.other_processes if snapshot.gpu else None
    told = () if others is None else (Evidence("other processes on the GPU", float(others), "processes"),)
    if factor is None:
        if others == 0:
            return refuted(KIND, "no other process computes on the GPU", *told)
        return unverified(
            KIND,
            "whether batches take longer in traffic than alone is not known",
            *told,
            missing=(Missing("batches in traffic against the same alone, at equal clocks", "P14"),),
        )
    evidence = (Evidence("time of a batch in traffic over alone", factor.value, "ratio", SLOWED), *told)
    if factor.value <= SLOWED or factor.low <= 1.0:
        return refuted(KIND, f"in traffic a batch takes {factor.value:.2f} times as long as alone", *evidence)
    saved = Interval(1 - 1 / factor.value, 1 - 1 / factor.low, 1 - 1 / factor.high)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"a batch takes {factor.value:.2f} times as long in traffic as alone, at equal clocks and lanes",
        evidence=evidence,
        gain=device_gain(snapshot, station_loads(snapshot), saved, GainLabel.MEASURED),
        fix=Fix(
            "give the model a device of its own, or share it by MIG or MPS; ask monitoring to poll less",
            command="nvidia-smi --query-compute-apps=pid,name --format=csv",
        ),
        verify="the factor of probe P14 must fall below 1.1",
    )

"""memory-bound: the device limits, and most of its time goes to layers that move bytes as fast as its memory can.

Confirmed where more than half of the time is in layers that reach 0.6 of the measured bandwidth (taxonomy class 11)
and the device is the limiter. Half the bytes are at most twice the speed, for those layers alone.
"""

from __future__ import annotations

from service.diagnosis.finding import BottleneckClass, Finding, Fix, Gain, GainLabel, Verdict, percent
from service.diagnosis.gains import amdahl, throughput_gain
from service.diagnosis.layers import LayerClass
from service.diagnosis.misconceptions import LANES_DO_NOT_MULTIPLY
from service.diagnosis.roof_rule import AtRoof, at_roof
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.MEMORY_BOUND
HALVED = 2.0


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the device's memory limits it."""
    found = at_roof(snapshot, KIND, LayerClass.MEMORY)
    if isinstance(found, Finding):
        return found
    longest = max(
        (layer for layer in found.table.layers if layer.kind is LayerClass.MEMORY), key=lambda layer: layer.share
    )
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"the device limits, and {percent(found.share)} of its time is in layers that move bytes near the "
        f"memory's peak, {longest.figures.name} first",
        evidence=found.evidence,
        gain=_gain(snapshot, found),
        fix=_fix(snapshot, found.precision(snapshot.model.precision)),
        verify="the device's time per row must fall",
        note=LANES_DO_NOT_MULTIPLY,
    )


def _gain(snapshot: MetricsSnapshot, found: AtRoof) -> Gain | None:
    most = amdahl(found.share, HALVED)
    return throughput_gain(station_loads(snapshot), Station.DEVICE, Interval(most, 1.0, most), GainLabel.UPPER_BOUND)


def _fix(snapshot: MetricsSnapshot, precision: str) -> Fix:
    text = "move fewer bytes: activations in fewer bits, element-wise layers fused into the products beside them, or "
    text += "larger batches where weights are most of the bytes"
    if precision in ("FP32", "TF32"):
        return Fix(text, card='[precision]\nmode = "fp16"', command=f"inferlane build {snapshot.model.name}")
    return Fix(text, card="[build]\noptimization_level = 5", command=f"inferlane build {snapshot.model.name}")

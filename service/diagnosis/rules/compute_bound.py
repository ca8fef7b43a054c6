"""compute-bound: the device limits, and most of its time goes to layers that compute as fast as it can.

Confirmed where more than half of the time is in layers that reach 0.6 of the measured compute peak (taxonomy class 10;
the cut-off is Nsight Compute's) and the device is the limiter. What lower precision gains is an upper bound: a halving
at most doubles the peak, and only for those layers.
"""

from __future__ import annotations

from service.diagnosis.finding import BottleneckClass, Finding, Fix, Gain, GainLabel, Verdict, percent
from service.diagnosis.gains import amdahl, throughput_gain
from service.diagnosis.layers import LayerClass
from service.diagnosis.misconceptions import LANES_DO_NOT_MULTIPLY, PRECISION_IS_NOT_FASTER_BY_ITSELF
from service.diagnosis.roof_rule import AtRoof, at_roof
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.COMPUTE_BOUND
HALVED = 2.0
NEXT_PRECISION = {"FP32": "fp16", "TF32": "fp16", "FP16": "int8", "BF16": "int8"}


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether arithmetic limits the device."""
    found = at_roof(snapshot, KIND, LayerClass.COMPUTE)
    if isinstance(found, Finding):
        return found
    lower = NEXT_PRECISION.get(found.precision(snapshot.model.precision))
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"the device limits, and {percent(found.share)} of its time is in layers that compute near its peak",
        evidence=found.evidence,
        gain=_gain(snapshot, found) if lower else None,
        fix=_fix(snapshot, lower),
        verify="the device's time per row must fall, at a cosine similarity above [precision] min_cosine",
        note=PRECISION_IS_NOT_FASTER_BY_ITSELF if lower else LANES_DO_NOT_MULTIPLY,
    )


def _gain(snapshot: MetricsSnapshot, found: AtRoof) -> Gain | None:
    most = amdahl(found.share, HALVED)
    return throughput_gain(station_loads(snapshot), Station.DEVICE, Interval(most, 1.0, most), GainLabel.UPPER_BOUND)


def _fix(snapshot: MetricsSnapshot, lower: str | None) -> Fix:
    if lower is None:
        return Fix("use a smaller model, or more GPUs: the layers leave nothing to tune")
    return Fix(
        "compute in fewer bits, or use a smaller model or more GPUs",
        card=f'[precision]\nmode = "{lower}"',
        command=f"inferlane build {snapshot.model.name}",
    )

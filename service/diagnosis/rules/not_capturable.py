"""not-capturable: the engine does what no graph may hold, such as waiting for the device or allocating.

Capture was tried and failed, or layers' sizes depend on data (TensorRT's TrainStation and dynamic outputs); the reason
is counted per bucket. Any is a fault (taxonomy class 9). What a graph would save cannot be measured, for there is none:
it is at most the host's time for launching.
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    Verdict,
    percent,
    refuted,
    unrecorded,
)
from service.diagnosis.gains import at_most, device_gain
from service.diagnosis.graph_use import CANNOT_CAPTURE, EagerCost, eager_cost, uses_missing
from service.diagnosis.misconceptions import GRAPHS_DO_NOT_FIT_EVERYTHING
from service.diagnosis.observed import is_on_gpu
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot

KIND = BottleneckClass.NOT_CAPTURABLE
FEW = 0.001


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the engine keeps graphs from being made."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: there are no graphs")
    if not snapshot.buckets:
        return unrecorded(KIND, "batches by bucket")
    eager = eager_cost(snapshot, uses_missing(snapshot, CANNOT_CAPTURE))
    evidence = [Evidence("batches that no graph can run", eager.share, "ratio", FEW)]
    if eager.share < FEW:
        return refuted(KIND, "every bucket that ran could be captured", *evidence)
    if eager.launch_ratio is not None:
        evidence.append(Evidence("launching over computing", eager.launch_ratio, "ratio"))
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{percent(eager.share)} of the batches cannot be captured: the engine waits for the device or "
        "allocates while it runs",
        evidence=tuple(evidence),
        gain=_gain(snapshot, eager),
        fix=Fix(
            "take what depends on data out of the engine: non-maximum suppression of fixed size, no NonZero, plugins "
            "that neither wait nor allocate",
            command="inferlane inspect PLAN --layers",
        ),
        verify="inferlane_graphs_missing with reason not_capturable or data_dependent must be gone",
        note=GRAPHS_DO_NOT_FIT_EVERYTHING,
    )


def _gain(snapshot: MetricsSnapshot, eager: EagerCost) -> Gain | None:
    if eager.saved is not None and eager.is_measured:
        return device_gain(snapshot, station_loads(snapshot), eager.saved, GainLabel.MEASURED, is_per_batch=True)
    if eager.launch_ratio is None:
        return None
    most = min(1.0, eager.launch_ratio) * eager.share
    return device_gain(snapshot, station_loads(snapshot), at_most(most), GainLabel.UPPER_BOUND, is_per_batch=True)

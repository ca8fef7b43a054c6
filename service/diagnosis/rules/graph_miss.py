"""graph-miss: some batches run without a graph although the engine could be captured in their shape.

The reason is counted per bucket (memory, a replay that differed, a size outside of the buckets), which tells it from
engines that cannot be captured and from graphs that are switched off. It matters from 3 % of the latency on (taxonomy
class 8: miss rate times what a graph saves).
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
from service.diagnosis.gains import device_gain
from service.diagnosis.graph_use import CANNOT_CAPTURE, SWITCHED_OFF, EagerCost, eager_cost, uses_missing
from service.diagnosis.misconceptions import GRAPHS_ARE_OF_ONE_SHAPE
from service.diagnosis.observed import is_on_gpu
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot

KIND = BottleneckClass.GRAPH_MISS
FEW = 0.001


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether batches miss a graph that they could have."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: there are no graphs")
    if not snapshot.buckets:
        return unrecorded(KIND, "batches by bucket")
    reasons = {use.miss_reason for use in snapshot.buckets} - CANNOT_CAPTURE - SWITCHED_OFF
    eager = eager_cost(snapshot, uses_missing(snapshot, reasons))
    evidence = (Evidence("batches that missed a graph", eager.share, "ratio", FEW),)
    if eager.share < FEW:
        return refuted(KIND, "no bucket misses a graph that it could have", *evidence)
    if eager.saved is None:
        return unverified(
            KIND,
            f"{percent(eager.share)} of the batches missed a graph; what one would save is not known",
            *evidence,
            missing=(Missing("a batch by its graph against one without", "P1"),),
        )
    found = (*evidence, Evidence("device time that graphs would save", eager.saved.value, "ratio"))
    if eager.saved.low <= 0.0:
        return refuted(KIND, "a graph saves no time that could be told from noise", *found)
    return _confirmed(snapshot, eager, found)


def _confirmed(snapshot: MetricsSnapshot, eager: EagerCost, evidence: tuple[Evidence, ...]) -> Finding:
    names = ", ".join(bucket.label for bucket in eager.buckets)
    why = sorted({str(use.miss_reason) for use in snapshot.buckets if use.bucket in eager.buckets})
    assert eager.saved is not None
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{percent(eager.share)} of the batches ran without a graph, in the buckets {names}: {', '.join(why)}",
        evidence=evidence,
        gain=device_gain(
            snapshot,
            station_loads(snapshot),
            eager.saved,
            GainLabel.MEASURED if eager.is_measured else GainLabel.MODELLED,
            is_per_batch=True,
        ),
        fix=_fix(why),
        verify="inferlane_eager_runs_total must stand still",
        note=GRAPHS_ARE_OF_ONE_SHAPE,
    )


def _fix(reasons: list[str]) -> Fix:
    if "memory_budget" in reasons:
        return Fix(
            "let graphs take more memory, or serve fewer buckets", card="[lanes]\ngraph_memory_bytes = 1073741824"
        )
    return Fix("name the sizes that come as buckets, so that each has a graph before it is needed", card="[buckets]")

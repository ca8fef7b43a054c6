"""launch-bound: launching kernels takes as long as running them.

Two forms. Without graphs: launching takes the host at least 0.8 of the device's time (trtexec's warning about enqueue),
and probe P1, graph against plain launch, says how much graphs would save; graphs that are missing for a reason of
their own are graph-miss and not-capturable. With graphs: many layers of less than 5 us that together are a fifth of the
time (NVIDIA's trt-perf-analysis), bound by the time that an empty kernel takes.
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
from service.diagnosis.gains import at_most, device_gain
from service.diagnosis.graph_use import SWITCHED_OFF, EagerCost, eager_cost, uses_missing
from service.diagnosis.layers import TINY_SHARE, LayerClass, LayerTable, classify
from service.diagnosis.misconceptions import GRAPH_MOVES_NO_BYTES, PRECISION_DOES_NOT_HELP_LAUNCHES
from service.diagnosis.observed import is_on_gpu
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot

KIND = BottleneckClass.LAUNCH_BOUND
LONG_LAUNCH = 0.8
FEW = 0.01
"""Share of eager batches below which graphs are in use."""


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether launches limit, and graphs or fewer kernels would help."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: nothing is launched on a device")
    if not snapshot.buckets:
        return unrecorded(KIND, "batches by bucket")
    eager = eager_cost(snapshot, uses_missing(snapshot, SWITCHED_OFF))
    if eager.share >= FEW:
        return _without_graphs(snapshot, eager)
    if not snapshot.layers or snapshot.probes.peaks is None:
        # Graphs are in use, so launching costs the host little; whether kernels are too small only layers show.
        return unverified(
            KIND,
            "batches run by their graphs; whether their kernels are too small is not known",
            missing=(Missing("the layers' times and the device's peaks", "P6 and P9"),),
        )
    return _with_graphs(snapshot, classify(snapshot.layers[0], snapshot.probes.peaks))


def _without_graphs(snapshot: MetricsSnapshot, eager: EagerCost) -> Finding:
    evidence = [Evidence("batches without a graph", eager.share, "ratio", FEW)]
    if eager.launch_ratio is not None:
        evidence.append(Evidence("launching over computing", eager.launch_ratio, "ratio", LONG_LAUNCH))
    if eager.saved is None:
        return unverified(
            KIND,
            f"{percent(eager.share)} of the batches ran without a graph; what one would save is not known",
            *evidence,
            missing=(Missing("a batch by its graph against one without", "P1"),),
            note=PRECISION_DOES_NOT_HELP_LAUNCHES,
        )
    evidence.append(Evidence("device time that graphs would save", eager.saved.value, "ratio"))
    if eager.saved.low <= 0.0:
        return refuted(
            KIND, "a graph saves no time that could be told from noise", *evidence, note=GRAPH_MOVES_NO_BYTES
        )
    label = GainLabel.MEASURED if eager.is_measured else GainLabel.MODELLED
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{percent(eager.share)} of the batches were launched kernel by kernel; graphs would save "
        f"{percent(eager.saved.value)} of the device's time",
        evidence=tuple(evidence),
        gain=device_gain(snapshot, station_loads(snapshot), eager.saved, label, is_per_batch=True),
        fix=Fix(
            "let every bucket have a CUDA Graph: no [lanes] graph_memory_bytes that forbids it",
            card="[lanes]\n# graph_memory_bytes left out: a tenth of what is free",
        ),
        verify="inferlane_eager_runs_total must stand still, and the device's time per batch must fall",
        note=PRECISION_DOES_NOT_HELP_LAUNCHES,
    )


def _with_graphs(snapshot: MetricsSnapshot, table: LayerTable) -> Finding:
    floor = table.share_of(LayerClass.LATENCY_FLOOR)
    evidence = (
        Evidence("layers of less than 5 us", float(len(table.tiny_layers)), "layers"),
        Evidence("their share of the time", sum(layer.share for layer in table.tiny_layers), "ratio", TINY_SHARE),
        Evidence("time in layers as short as an empty kernel", floor, "ratio", TINY_SHARE),
    )
    if not table.has_many_tiny_layers or floor < TINY_SHARE:
        return refuted(KIND, "batches run by their graphs, and their kernels are long enough", *evidence)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{len(table.tiny_layers)} layers of less than 5 us make {percent(floor)} of the time: the device "
        "starts kernels more than it runs them",
        evidence=evidence,
        gain=device_gain(
            snapshot,
            station_loads(snapshot),
            at_most(table.excess_share(LayerClass.LATENCY_FLOOR)),
            GainLabel.UPPER_BOUND,
        ),
        fix=Fix(
            "let fewer kernels do the work: let the builder search longer for fusions, simplify the ONNX graph, or let "
            "batches be larger",
            card="[build]\noptimization_level = 5",
            command=f"inferlane build {snapshot.model.name}",
        ),
        verify="the number of layers must fall, and the device's time per batch with it",
        note=PRECISION_DOES_NOT_HELP_LAUNCHES,
    )

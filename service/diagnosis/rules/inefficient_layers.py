"""inefficient-layers: layers far from both roofs for a reason that can be named.

Reasons: layers that only change type or layout take 5 % of the time (TREx's reformat report), or matrix products that
leave the tensor cores idle do (NVIDIA's trt-perf-analysis). A layer of a tenth of the time below 0.6 of both roofs
without such a reason stays unverified: only Nsight Compute can tell why. Gains are upper bounds.
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
from service.diagnosis.gains import at_most, device_gain
from service.diagnosis.layers import ClassifiedLayer, LayerClass, LayerTable, classify
from service.diagnosis.misconceptions import PRECISION_IS_NOT_FASTER_BY_ITSELF
from service.diagnosis.observed import is_on_gpu
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot

KIND = BottleneckClass.INEFFICIENT_LAYERS
LONG_REFORMATS = 0.05
LONG_PLAIN_PRODUCTS = 0.05
LONG_LAYER = 0.1
AT_LEAST = 2.0
"""How many times as fast tensor cores at least are, and a layer at its roof: what the plain products could gain."""


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether layers could run faster on this device than they do."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: there are no tensor cores and no reformats")
    if not snapshot.layers:
        return unverified(
            KIND, "the layers' times are not known", missing=(Missing("the layers of the busiest bucket", "P6"),)
        )
    table = classify(snapshot.layers[0], snapshot.probes.peaks)
    plain = sum(layer.share for layer in table.without_tensor_cores)
    evidence = (
        Evidence("time in reformats", table.reformat_share, "ratio", LONG_REFORMATS),
        Evidence("time in products without tensor cores", plain, "ratio", LONG_PLAIN_PRODUCTS),
        Evidence("time whose bound is known", table.coverage, "ratio"),
    )
    if table.reformat_share < LONG_REFORMATS and plain < LONG_PLAIN_PRODUCTS:
        return _without_reason(table, evidence)
    return _confirmed(snapshot, table, plain, evidence)


def _without_reason(table: LayerTable, evidence: tuple[Evidence, ...]) -> Finding:
    slow = [layer for layer in table.layers if layer.kind is LayerClass.INEFFICIENT and layer.share >= LONG_LAYER]
    if not slow:
        return refuted(KIND, "no reformat, no plain product and no slow layer takes much of the time", *evidence)
    longest = max(slow, key=lambda layer: layer.share)
    return unverified(
        KIND,
        f"{longest.figures.name} takes {percent(longest.share)} of the time, at {percent(longest.efficiency or 0.0)} "
        "of its roof; why is not known",
        *evidence,
        missing=(Missing(f"why the kernel of {longest.figures.name} is slow", "inferlane diagnose --ncu"),),
    )


def _confirmed(snapshot: MetricsSnapshot, table: LayerTable, plain: float, evidence: tuple[Evidence, ...]) -> Finding:
    reformats = table.reformat_share if table.reformat_share >= LONG_REFORMATS else 0.0
    products = plain if plain >= LONG_PLAIN_PRODUCTS else 0.0
    most = reformats + products * (1.0 - 1.0 / AT_LEAST)
    culprits = [layer for layer in table.layers if layer.figures.is_reformat] if reformats else []
    culprits += table.without_tensor_cores if products else ()
    names = ", ".join(layer.figures.name for layer in _longest(culprits))
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"reformats take {percent(table.reformat_share)} of the time and products without tensor cores "
        f"{percent(plain)}: {names}",
        evidence=evidence,
        gain=device_gain(snapshot, station_loads(snapshot), at_most(most), GainLabel.UPPER_BOUND),
        fix=Fix(
            "make channels multiples of 8 (FP16) or 16 (INT8), quantize both sides of an operator or none, and give "
            "the model the layout and type that its first layer computes in",
            card="[build]\noptimization_level = 5",
            command=f"inferlane build {snapshot.model.name} && inferlane inspect PLAN --layers",
        ),
        verify="both shares must fall, and the device's time per batch with them",
        note=PRECISION_IS_NOT_FASTER_BY_ITSELF,
    )


def _longest(layers: list[ClassifiedLayer]) -> list[ClassifiedLayer]:
    return sorted(layers, key=lambda layer: -layer.share)[:3]

"""A report as JSON: the document that `docs/diagnose.schema.json` describes.

Promises: every number is finite, what is not known is null, and the top level is exactly that of the schema.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from service.diagnosis.finding import Evidence, Finding, Fix, Gain, percent
from service.diagnosis.layers import ClassifiedLayer, LayerTable
from service.diagnosis.report import Report
from service.diagnosis.stations import StationLoad
from service.diagnosis.track_record import confidence
from service.diagnosis.validity import Check
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import BucketUse
from service.telemetry.snapshot_probes import Peaks

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

SCHEMA = "inferlane.diagnosis/1"
"""Name and version of the document; the version grows when a member changes its meaning or goes away."""


def to_json(report: Report) -> dict[str, JsonValue]:
    """The document of a report."""
    snapshot = report.snapshot
    return {
        "schema": SCHEMA,
        "id": report.id,
        "window": _window(report),
        "model": {
            "name": snapshot.model.name,
            "version": snapshot.model.version,
            "backend": snapshot.model.backend,
            "task": snapshot.model.task,
        },
        "healthy": report.is_healthy,
        "limiter": report.limiter.station.value if report.limiter else None,
        "stations": {load.station.value: _station(load) for load in report.stations},
        "findings": [_finding(finding, report) for finding in report.findings],
        "layers": [layers_document(table) for table in report.layers],
        "peaks": _peaks(snapshot.probes.peaks),
        "buckets": [_bucket(snapshot, use) for use in snapshot.buckets],
    }


def number(value: float | None) -> float | None:
    """A number that JSON can hold; null for what is unknown or infinite."""
    return value if value is not None and math.isfinite(value) else None


def gain_to_json(gain: Gain | None) -> dict[str, JsonValue] | None:
    """A gain's five members."""
    if gain is None:
        return None
    return {
        "metric": gain.metric.value,
        "value": number(gain.value),
        "low": number(gain.low),
        "high": number(gain.high),
        "label": gain.label.value,
    }


def _window(report: Report) -> dict[str, JsonValue]:
    snapshot = report.snapshot
    requests = snapshot.requests
    return {
        "began_unix_s": number(snapshot.window.began_unix_s),
        "duration_s": number(snapshot.window.duration_s),
        "headline": report.headline,
        "valid": report.is_valid,
        "checks": [_check(check) for check in report.checks],
        "requests": requests.duration.count,
        "rows": requests.rows,
        "rows_per_s": number(snapshot.rows_per_s),
        "offered_rows_per_s": number(snapshot.arrivals.rows_per_s) if snapshot.arrivals else None,
        "latency_mean_s": number(snapshot.latency_s),
        "latency_p50_s": number(requests.duration.p50_s),
        "latency_p99_s": number(requests.duration.p99_s),
        "in_flight": number(requests.in_flight_mean),
        "in_flight_knee": number(report.knee_requests),
        "stages_s": {stage.value: number(durations.mean_s) for stage, durations in requests.stages.items()},
        "stages_p50_s": {stage.value: number(durations.p50_s) for stage, durations in requests.stages.items()},
        "stages_p99_s": {stage.value: number(durations.p99_s) for stage, durations in requests.stages.items()},
    }


def _check(check: Check) -> dict[str, JsonValue]:
    return {
        "name": check.name,
        "passed": check.is_passed,
        "detail": check.detail,
        "mend": check.mend if check.is_passed is False else "",
        "named_by": check.named_by.value if check.named_by else None,
    }


def _station(load: StationLoad) -> dict[str, JsonValue]:
    return {
        "demand_s": number(load.demand_s),
        "utilisation": number(load.utilisation),
        "capacity_rows_per_s": number(load.capacity_rows_per_s),
        "load": number(load.load),
        "within": load.within.value if load.within else None,
    }


def _finding(finding: Finding, report: Report) -> dict[str, JsonValue]:
    return {
        "class": finding.kind.value,
        "verdict": finding.verdict.value,
        "summary": finding.summary,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "gain": gain_to_json(finding.gain),
        "confidence": number(confidence(finding, report.records)),
        "fix": _fix(finding.fix),
        "verify": verification(finding, report),
        "missing": [{"what": missing.what, "probe": missing.probe} for missing in finding.missing],
        "note": finding.note,
    }


def verification(finding: Finding, report: Report) -> str:
    """What to do after the fix, and what must then be seen: the exact call with the report's id; empty without one."""
    if finding.fix is None:
        return ""
    call = f"reload the model, keep the load, then GET /diagnose?model={report.snapshot.model.name}&since={report.id}"
    gain = finding.gain
    if gain is None:
        return f"{call}: {finding.verify}"
    verb = "grow" if gain.metric.value == "throughput" else "fall"
    expected = f"{gain.metric.value} must {verb} by {percent(gain.value)} ({percent(gain.low)} to {percent(gain.high)})"
    return f"{call}: {expected}; {finding.verify}"


def _evidence(evidence: Evidence) -> dict[str, JsonValue]:
    return {
        "name": evidence.name,
        "value": number(evidence.value),
        "unit": evidence.unit,
        "threshold": number(evidence.threshold),
    }


def _fix(fix: Fix | None) -> dict[str, JsonValue] | None:
    return None if fix is None else {"text": fix.text, "card": fix.card, "command": fix.command}


def layers_document(table: LayerTable) -> dict[str, JsonValue]:
    """The layers of one bucket, in the order of execution; as in `layers` of a report."""
    return {
        "bucket": table.bucket.label,
        "span_s": number(table.span_s),
        "scale": number(table.scale),
        "coverage": number(table.coverage),
        "reformat_share": number(table.reformat_share),
        "layers": [_layer(layer) for layer in table.layers],
    }


def _layer(layer: ClassifiedLayer) -> dict[str, JsonValue]:
    figures = layer.figures
    return {
        "name": figures.name,
        "kind": figures.kind,
        "time_s": number(layer.time_s),
        "profiled_s": number(figures.time_s),
        "share": number(layer.share),
        "flops": number(figures.flops),
        "bytes": number(figures.nbytes),
        "intensity": number(layer.intensity),
        "efficiency": number(layer.efficiency),
        "class": layer.kind.value,
        "cache_resident": layer.is_cache_resident,
        "dtype": figures.dtype,
        "tactic": figures.tactic,
        "tensor_core": figures.is_tensor_core,
        "reformat": figures.is_reformat,
        "origin": list(figures.origin),
    }


def _peaks(peaks: Peaks | None) -> dict[str, JsonValue] | None:
    if peaks is None:
        return None
    return {
        "flops_per_s": {dtype: number(rate) for dtype, rate in peaks.flops_per_s.items()},
        "bytes_per_s": number(peaks.bytes_per_s),
        "empty_kernel_s": number(peaks.empty_kernel_s),
        "cache_bytes": peaks.cache_bytes,
    }


def _bucket(snapshot: MetricsSnapshot, use: BucketUse) -> dict[str, JsonValue]:
    volume = use.padded_volume
    return {
        "bucket": use.bucket.label,
        "profile": use.profile,
        "batches": use.batches,
        "rows": use.rows,
        "fill": number(use.rows / use.padded_rows) if use.padded_rows else None,
        "waste": number(1.0 - use.useful_volume / volume) if use.useful_volume is not None and volume else None,
        "batch_s": number(use.compute.mean_s) if use.compute else None,
        "cost_s": number(snapshot.costs_s.get(use.bucket)),
        "replays": use.replays,
        "eager_runs": use.eager_runs,
        "miss_reason": use.miss_reason,
    }

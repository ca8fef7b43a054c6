"""Names that a query may use, of a declared metric."""

from __future__ import annotations

from service.telemetry.metric_spec import MetricKind, MetricSpec


def sample_names(spec: MetricSpec) -> tuple[str, ...]:
    if spec.kind is not MetricKind.HISTOGRAM:
        return (spec.name,)
    return (f"{spec.name}_bucket", f"{spec.name}_count", f"{spec.name}_sum")

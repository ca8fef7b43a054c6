"""Metric families of prometheus_client from our declarations and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from service.telemetry.exposition import go_float
from service.telemetry.histogram import Histograms
from service.telemetry.metric_spec import MetricKind, MetricSpec

LabelledNumber = tuple[Sequence[str], float]
LabelledHistogram = tuple[Sequence[str], Histograms, int]

_NUMBER_FAMILIES: dict[MetricKind, type[CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.UNKNOWN: UnknownMetricFamily,
}


def number_family(spec: MetricSpec, samples: Iterable[LabelledNumber]) -> Metric:
    """A counter, a gauge or an untyped metric.

    Args:
        spec: its declaration.
        samples: values of the labels in the declared order, and the number in the unit of the metric's name.
    """
    family = _NUMBER_FAMILIES[spec.kind](spec.name, spec.help, labels=spec.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def histogram_family(spec: MetricSpec, samples: Iterable[LabelledHistogram], *, divisor: int = 1) -> Metric:
    """A histogram.

    Args:
        spec: its declaration.
        samples: values of the labels in the declared order, histograms, and which of their columns to show.
        divisor: units of the histograms per unit of the metric's name.
    """
    family = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
    bounds = [*(go_float(bound) for bound in spec.bounds), "+Inf"]
    for labels, histograms, column in samples:
        buckets = list(zip(bounds, histograms.cumulative(column), strict=True))
        family.add_metric(labels, buckets, histograms.sums[column] / divisor)
    return family


def empty_family(spec: MetricSpec) -> Metric:
    """The family without samples, which tells a registry the names that it takes."""
    return histogram_family(spec, ()) if spec.kind is MetricKind.HISTOGRAM else number_family(spec, ())

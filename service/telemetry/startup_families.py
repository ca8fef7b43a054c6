"""Metric families of what start-up found and how long it took; a model that is not loaded has no samples in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from service.buckets import Bucket, Unserved, UnservedReason
from service.telemetry import metrics
from service.telemetry.bucket_labels import bucket_labels, sums_by_label
from service.telemetry.families import LabelledNumber, number_family
from service.telemetry.figures import ModelFigures
from service.units import NS_PER_S


def startup_families(models: Sequence[ModelFigures]) -> Iterator[Metric]:
    """Families of the buckets that are not served, and of the phases' times."""
    yield number_family(metrics.BUCKETS_UNSERVED, _unserved(models))
    yield number_family(
        metrics.STARTUP,
        (
            ((model.name, model.version, phase), duration_ns / NS_PER_S)
            for model in models
            if model.gauges
            for phase, duration_ns in model.gauges.startup_ns.items()
        ),
    )


def _unserved(models: Sequence[ModelFigures]) -> Iterator[LabelledNumber]:
    for model in models:
        unserved: Mapping[Bucket, Unserved] = model.gauges.unserved if model.gauges else {}
        labels = bucket_labels(unserved)
        for reason in UnservedReason:
            ones = {bucket: 1 for bucket, why in unserved.items() if why.reason is reason}
            for label, count in sums_by_label(labels, ones).items():
                yield (model.name, model.version, label, reason.value), count

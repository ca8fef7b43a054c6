"""Metric families of what the models do on their device and hold there; a model on the CPU has no samples in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from service.buckets import Bucket
from service.telemetry import metrics
from service.telemetry.bucket_labels import bucket_labels, sums_by_label
from service.telemetry.families import LabelledNumber, number_family
from service.telemetry.figures import ModelFigures


def device_families(models: Sequence[ModelFigures]) -> Iterator[Metric]:
    """Families of graphs, copies and device memory."""
    labels = [_labels(model) for model in models]
    labelled = list(zip(models, labels, strict=True))
    yield number_family(
        metrics.GRAPH_REPLAYS,
        (sample for model, of in labelled for sample in _by_bucket(model, of, model.device.replays)),
    )
    yield number_family(
        metrics.EAGER_RUNS,
        (sample for model, of in labelled for sample in _by_bucket(model, of, model.device.eager_runs)),
    )
    yield number_family(
        metrics.GRAPHS_MISSING,
        (
            ((*key, reason.value), lanes)
            for model, of in labelled
            for reason, missing in model.graphs_missing.items()
            for key, lanes in _by_bucket(model, of, missing)
        ),
    )
    yield number_family(
        metrics.COPIED_BYTES,
        (
            ((model.name, model.version, direction.value), copied)
            for model in models
            for direction, copied in model.device.copied_bytes.items()
        ),
    )
    yield number_family(
        metrics.DEVICE_MEMORY,
        (
            ((model.name, model.version, owner.value), held)
            for model in models
            for owner, held in model.device_bytes.items()
        ),
    )


def _labels(model: ModelFigures) -> dict[Bucket, str]:
    missing = (bucket for buckets in model.graphs_missing.values() for bucket in buckets)
    return bucket_labels((*model.device.replays, *model.device.eager_runs, *missing))


def _by_bucket(
    model: ModelFigures, labels: Mapping[Bucket, str], numbers: Mapping[Bucket, int]
) -> Iterator[LabelledNumber]:
    for label, total in sums_by_label(labels, numbers).items():
        yield (model.name, model.version, label), total

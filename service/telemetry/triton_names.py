"""The same figures under Triton's names, so that dashboards made for Triton go on working.

Unlike Triton, refused requests are counted, as `REJECTED`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import Metric

from service.errors import ClientGone, DeadlineExceeded, ExecutionFailed, NotReady, Overloaded, ShuttingDown
from service.telemetry import metrics
from service.telemetry.families import LabelledNumber, number_family
from service.telemetry.figures import ModelFigures
from service.telemetry.metric_spec import MetricSpec
from service.units import NS_PER_US

TRITON_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")

_REASONS = {
    Overloaded.reason: "REJECTED",
    DeadlineExceeded.reason: "REJECTED",
    NotReady.reason: "REJECTED",
    ShuttingDown.reason: "REJECTED",
    ClientGone.reason: "CANCELED",
    ExecutionFailed.reason: "BACKEND",
}

_NUMBERS: tuple[tuple[MetricSpec, Callable[[ModelFigures], int]], ...] = (
    (metrics.TRITON_SUCCESS, lambda model: model.requests.count),
    (metrics.TRITON_COUNT, lambda model: model.requests.rows),
    (metrics.TRITON_EXEC_COUNT, lambda model: model.batches.count),
    (metrics.TRITON_REQUEST_US, lambda model: model.requests.duration_ns // NS_PER_US),
    (
        metrics.TRITON_QUEUE_US,
        lambda model: (model.requests.stage_ns("queue") + model.requests.stage_ns("dispatch")) // NS_PER_US,
    ),
    (metrics.TRITON_INPUT_US, lambda model: model.requests.stage_ns("h2d") // NS_PER_US),
    (metrics.TRITON_INFER_US, lambda model: model.requests.stage_ns("compute") // NS_PER_US),
    (metrics.TRITON_OUTPUT_US, lambda model: model.requests.stage_ns("d2h") // NS_PER_US),
)


def triton_reason(reason: str) -> str:
    """Triton's word for one of our reasons."""
    return _REASONS.get(reason, "OTHER")


def triton_families(models: Sequence[ModelFigures]) -> Iterator[Metric]:
    """Families of every metric in `metrics.TRITON`."""
    for spec, value_of in _NUMBERS:
        yield number_family(spec, (((model.name, model.version), value_of(model)) for model in models))
    yield number_family(metrics.TRITON_FAILURE, _failures(models))
    yield number_family(
        metrics.TRITON_PENDING,
        (((model.name, model.version), model.gauges.queued_requests()) for model in models if model.gauges),
    )


def _failures(models: Sequence[ModelFigures]) -> Iterator[LabelledNumber]:
    for model in models:
        counts: Counter[str] = Counter()
        for reason, count in model.failures.items():
            counts[triton_reason(reason)] += count
        for reason in TRITON_REASONS:
            yield (model.name, model.version, reason), counts[reason]

"""Turns figures into Prometheus' metric families, on the registry that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from service.telemetry import metrics
from service.telemetry.device_families import device_families
from service.telemetry.families import LabelledNumber, empty_family, histogram_family, number_family
from service.telemetry.figures import ModelFigures, ModelGauges, ServerFigures
from service.telemetry.front_ends import process_name
from service.telemetry.gpu_families import gpu_families, triton_gpu_families
from service.telemetry.histogram import Histograms
from service.telemetry.metric_spec import MetricSpec
from service.telemetry.metrics import LANE_STAGES, STAGES
from service.telemetry.startup_families import startup_families
from service.telemetry.totals import BatchTotals
from service.telemetry.triton_names import triton_families
from service.units import NS_PER_S

_BATCH_HISTOGRAMS: tuple[tuple[MetricSpec, Callable[[BatchTotals], Histograms]], ...] = (
    (metrics.BATCH_SIZE, lambda batches: batches.sizes),
    (metrics.BATCH_REQUESTS, lambda batches: batches.request_counts),
    (metrics.BATCH_FILL_RATIO, lambda batches: batches.fill_ratios),
)
_BUCKET_COUNTERS: tuple[tuple[MetricSpec, Callable[[BatchTotals], NDArray[np.int64]]], ...] = (
    (metrics.BUCKET_DISPATCHES, lambda batches: batches.bucket_dispatches),
    (metrics.BUCKET_ROWS, lambda batches: batches.bucket_rows),
    (metrics.BUCKET_PADDED_ROWS, lambda batches: batches.bucket_padded_rows),
)
_GAUGES: tuple[tuple[MetricSpec, Callable[[ModelGauges], int]], ...] = (
    (metrics.QUEUE_REQUESTS, lambda gauges: gauges.queued_requests()),
    (metrics.QUEUE_BYTES, lambda gauges: gauges.queued_bytes()),
    (metrics.IN_FLIGHT_REQUESTS, lambda gauges: gauges.in_flight_requests()),
    (metrics.LANES, lambda gauges: gauges.lanes()),
    (metrics.LANES_BUSY, lambda gauges: gauges.busy_lanes()),
)


class FiguresCollector(Collector):
    """Collects what a recorder has counted; may be asked on any thread.

    Args:
        figures: folds what is pending and tells the totals.
        triton_names_enabled: whether the figures are repeated under Triton's names.
    """

    def __init__(self, figures: Callable[[], ServerFigures], *, triton_names_enabled: bool) -> None:
        self._figures = figures
        self._triton_names_enabled = triton_names_enabled

    def describe(self) -> Iterable[Metric]:
        """Every family without samples, so that a registry refuses a second owner of a name."""
        specs = (*metrics.OWN, *metrics.TRITON) if self._triton_names_enabled else metrics.OWN
        return [empty_family(spec) for spec in specs]

    def collect(self) -> Iterator[Metric]:
        """Every family with its samples."""
        figures = self._figures()
        yield from _request_families(figures.models)
        yield from _batch_families(figures.models)
        yield from device_families(figures.models)
        yield from startup_families(figures.models)
        yield from _gauge_families(figures.models)
        yield number_family(
            metrics.UNATTRIBUTED_FAILURES,
            (((reason,), count) for reason, count in figures.unattributed_failures.items()),
        )
        yield number_family(metrics.STREAMS, [((), figures.open_streams)])
        yield number_family(metrics.DROPPED_FRAMES, [((), figures.dropped_frames)])
        yield from gpu_families(figures.gpus)
        yield histogram_family(metrics.LOOP_LAG, [((), figures.loop_lag, 0)], divisor=NS_PER_S)
        yield from _process_families(figures)
        if self._triton_names_enabled:
            yield from triton_families(figures.models)
            yield from triton_gpu_families(figures.gpus)


def _process_families(figures: ServerFigures) -> Iterator[Metric]:
    yield number_family(metrics.FRONT_ENDS, [((), len(figures.front_ends))])
    yield number_family(
        metrics.FRONT_END_HELD, (((process_name(each.index),), each.held_bytes) for each in figures.front_ends)
    )
    yield number_family(
        metrics.PROCESS_RESTARTS, (((process,), restarts) for process, restarts in figures.restarts.items())
    )


def _labels(model: ModelFigures) -> tuple[str, str]:
    return model.name, model.version


def _request_families(models: Sequence[ModelFigures]) -> Iterator[Metric]:
    yield histogram_family(
        metrics.REQUEST_DURATION,
        ((_labels(model), model.requests.durations, len(STAGES)) for model in models),
        divisor=NS_PER_S,
    )
    yield histogram_family(
        metrics.REQUEST_STAGE,
        (
            ((*_labels(model), stage), model.requests.durations, column)
            for model in models
            for column, stage in enumerate(STAGES)
        ),
        divisor=NS_PER_S,
    )
    yield number_family(metrics.REQUESTS, _outcomes(models))
    yield number_family(metrics.INFERENCE_ROWS, ((_labels(model), model.requests.rows) for model in models))


def _outcomes(models: Sequence[ModelFigures]) -> Iterator[LabelledNumber]:
    for model in models:
        yield (*_labels(model), metrics.OUTCOME_OK), model.requests.count
        for reason, count in model.failures.items():
            yield (*_labels(model), reason), count


def _batch_families(models: Sequence[ModelFigures]) -> Iterator[Metric]:
    for spec, histograms_of in _BATCH_HISTOGRAMS:
        yield histogram_family(spec, ((_labels(model), histograms_of(model.batches), 0) for model in models))
    for spec, counts_of in _BUCKET_COUNTERS:
        yield number_family(
            spec,
            (
                ((*_labels(model), bucket), count)
                for model in models
                for bucket, count in zip(model.bucket_labels, counts_of(model.batches).tolist(), strict=True)
            ),
        )
    yield number_family(
        metrics.BUCKET_STAGE,
        (
            ((*_labels(model), bucket, stage), stage_ns / NS_PER_S)
            for model in models
            for bucket, stages_ns in zip(model.bucket_labels, model.batches.bucket_stages_ns.tolist(), strict=True)
            for stage, stage_ns in zip(LANE_STAGES, stages_ns, strict=True)
        ),
    )
    yield number_family(
        metrics.LANE_BUSY,
        (
            ((*_labels(model), str(lane_id)), lane.busy_ns / NS_PER_S)
            for model in models
            for lane_id, lane in sorted(model.batches.lanes.items())
        ),
    )


def _gauge_families(models: Sequence[ModelFigures]) -> Iterator[Metric]:
    for spec, value_of in _GAUGES:
        yield number_family(spec, ((_labels(model), value_of(model.gauges)) for model in models if model.gauges))
    yield number_family(metrics.MODEL_LOADED, ((_labels(model), int(model.gauges is not None)) for model in models))

"""Writes `docs/metrics.md` from the declarations: `python -m service.telemetry.reference > docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from service.buckets import UnservedReason
from service.device_figures import MemoryOwner, MissReason
from service.telemetry.gpu_figures import ClockEvent
from service.telemetry.metric_spec import MetricKind, MetricSpec
from service.telemetry.metrics import LANE_STAGES, OWN, REASONS, STAGES, TRITON
from service.telemetry.triton_names import TRITON_REASONS, triton_reason

_INTRODUCTION = """\
# Metrics

`GET /metrics` answers in Prometheus' text format, or in OpenMetrics where `Accept` asks for it. Metrics are on by
default; `INFERLANE_METRICS_ENABLED=false` switches them off, `INFERLANE_TRITON_METRICS_ENABLED=false` leaves out
Triton's names. `python -m service.telemetry.recorder_cost` measures what recording and scraping cost on your machine.

This file is generated from `metrics.py` and `gpu_metrics.py` in `service/telemetry` by
`python -m service.telemetry.reference > docs/metrics.md`.
"""

_GPU_NOTES = """
Phases of a model's start-up: `open`, `warm_up`, `checks`, `lanes`.

A lane on a GPU holds two batches, so `h2d` there holds a batch's wait for the one in front beside gathering and
uploading; `compute` is what the engine takes, by the device's own clock.

The server asks NVML, once a second and on a thread of its own, about the GPUs that its models use, if `nvidia-ml-py`
is installed (`pip install -e '.[gpu]'`). What a GPU, its driver or the permissions do not give has no sample, and
the log says so once; nor has anything, where NVML hangs for more than 10 seconds. Activity, memory bandwidth and PCIe
come from NVML's performance monitoring (GPM), which disturbs DCGM's profiling counters and is disturbed by them: where
an exporter of DCGM reads those on the same GPU, set `INFERLANE_GPU_METRICS_ENABLED=false`.
"""

QUERIES = (
    (
        "99th percentile of the latency",
        "histogram_quantile(0.99, sum by (model, le) (rate(inferlane_request_duration_seconds_bucket[5m])))",
    ),
    ("Where the time goes", "sum by (stage) (rate(inferlane_request_stage_seconds_sum[5m]))"),
    (
        "Share of requests refused",
        'sum(rate(inferlane_requests_total{outcome="overloaded"}[5m])) / sum(rate(inferlane_requests_total[5m]))',
    ),
    (
        "Share of the computed rows that was padding",
        "1 - sum(rate(inferlane_bucket_rows_total[5m])) / sum(rate(inferlane_bucket_padded_rows_total[5m]))",
    ),
    (
        "Mean time that a batch computes, by bucket",
        'sum by (model, bucket) (rate(inferlane_bucket_stage_seconds_total{stage="compute"}[5m])) / '
        "sum by (model, bucket) (rate(inferlane_bucket_dispatches_total[5m]))",
    ),
    (
        "Share of the batches on a GPU that ran without a CUDA Graph",
        "sum by (model) (rate(inferlane_eager_runs_total[5m])) / "
        "(sum by (model) (rate(inferlane_eager_runs_total[5m])) + "
        "sum by (model) (rate(inferlane_graph_replays_total[5m])))",
    ),
    ("How much of the GPU works", "avg_over_time(inferlane_gpu_sm_activity_ratio[5m])"),
    ("What holds the GPU's clocks down", 'inferlane_gpu_clock_event{reason!="idle"} > 0'),
    ("Who holds the GPU's memory", "sum by (model, owner) (inferlane_device_memory_bytes)"),
    (
        "How busy the lanes are",
        "sum by (model) (rate(inferlane_lane_busy_seconds_total[5m])) / sum by (model) (inferlane_lanes)",
    ),
)


def metrics_reference() -> str:
    """The text of `docs/metrics.md`."""
    parts = [
        _INTRODUCTION,
        "\n## Questions and queries\n\n| Question | PromQL |\n| --- | --- |\n",
        *(f"| {question} | `{query}` |\n" for question, query in QUERIES),
        "\nPadding of dimensions other than the batch is not part of the row counts.\n",
        "\n## Inferlane's metrics\n\n",
        *_table(OWN),
        f"\nStages, in a request's order: {_codes(STAGES)}.\n",
        f"\nReasons, which are outcomes apart from `ok`: {_codes(REASONS)}.\n",
        f"\nStages on a lane: {_codes(LANE_STAGES)}.\n",
        f"\nReasons for which a bucket has no CUDA Graph: {_codes(reason.value for reason in MissReason)}.\n",
        f"\nReasons for which a bucket is not served: {_codes(reason.value for reason in UnservedReason)}.\n",
        f"\nOwners of device memory: {_codes(owner.value for owner in MemoryOwner)}.\n",
        "\nGraphs, copies and device memory have no samples for a model on the CPU.\n",
        f"\nWhat may hold a GPU's clocks down: {_codes(event.value for event in ClockEvent)}.\n",
        _GPU_NOTES,
        "\nHistogram bounds:\n\n",
        *(f"- `{spec.name}`: {_bounds(spec)}\n" for spec in OWN if spec.kind is MetricKind.HISTOGRAM),
        "\n## Triton's names\n\n",
        "OpenMetrics allows no counter without `_total`, so their type is unknown; `rate()` works all the same.\n\n",
        *_table(TRITON),
        "\n| Triton's reason | ours |\n| --- | --- |\n",
        *(f"| `{name}` | {_codes(_reasons_of(name))} |\n" for name in TRITON_REASONS),
        "\n## Process and Python\n\n",
        "prometheus_client adds `process_*` (CPU, memory, file descriptors, start time; on Linux), `python_info` and\n"
        "`python_gc_*`.\n",
    ]
    return "".join(parts)


def _table(specs: Iterable[MetricSpec]) -> Iterable[str]:
    yield "| Name | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n"
    for spec in specs:
        yield f"| `{spec.name}` | {spec.kind.value} | {_codes(spec.labels)} | {spec.help} |\n"


def _codes(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _bounds(spec: MetricSpec) -> str:
    return ", ".join(f"{bound:g}" for bound in spec.bounds)


def _reasons_of(name: str) -> list[str]:
    return [reason for reason in REASONS if triton_reason(reason) == name]


if __name__ == "__main__":
    sys.stdout.write(metrics_reference())

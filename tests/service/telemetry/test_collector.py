import pytest
from prometheus_client import CollectorRegistry

from service.buckets import Bucket, Unserved, UnservedReason
from service.device_figures import GraphMiss, LaneFigures, MemoryOwner, MissReason
from service.requests import BatchTimings, StageTimings
from service.telemetry.gpu_figures import ClockEvent, GpuFigures, Reading
from service.telemetry.metrics import OWN, REASONS, STAGES, TRITON
from service.telemetry.recorder import ModelGauges, Recorder
from tests.doubles.metric_names import sample_names

TIMINGS = StageTimings(*(stage * 100_000 for stage in range(1, len(STAGES) + 1)))
LABELS = {"model": "m", "version": "1"}
LANE = LaneFigures(
    replays={Bucket(8, (32,)): 1},
    eager_runs={Bucket(8, (32,)): 0},
    graph_misses={Bucket(1, (32,)): GraphMiss(MissReason.NOT_CAPTURABLE, "words")},
    device_bytes={MemoryOwner.SCRATCH: 1},
)

UNSERVED = {Bucket(4, (32,)): Unserved(UnservedReason.CANNOT_RUN, "words")}
GPU = GpuFigures(
    uuid="GPU-1",
    name="NVIDIA H200",
    driver="580.65.06",
    readings=dict.fromkeys(Reading, 1.0),
    clock_events=dict.fromkeys(ClockEvent, False),
    sampling_ns=2_500_000_000,
)


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    recorder = Recorder(registry=registry, triton_names_enabled=True, gpus=lambda: (GPU,))
    state = (lambda: 6, lambda: 600, lambda: 9, lambda: 4, lambda: 3)
    model = recorder.for_model(
        "m", "1", ModelGauges(*state, lane_figures=lambda: (LANE,), unserved=UNSERVED, startup_ns={"open": 1})
    )
    model.record_request(TIMINGS, 3)
    model.record_request(TIMINGS, 2)
    model.record_failure("timeout")
    second = 1_000_000_000
    model.record_batch(Bucket(8, (32,)), 5, 2, BatchTimings(second, 3 * second // 2, 2 * second, 3 * second), 1)
    front_end = recorder.front_ends.begin(1, restarts=2)
    recorder.front_ends.count(front_end, 5, [7], held_bytes=4096)
    return registry


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("inferlane_request_duration_seconds_count", {}, 2),
        ("inferlane_request_duration_seconds_sum", {}, 2 * 6.6e-3),
        ("inferlane_request_duration_seconds_bucket", {"le": "0.005"}, 0),
        ("inferlane_request_duration_seconds_bucket", {"le": "0.01"}, 2),
        ("inferlane_request_duration_seconds_bucket", {"le": "+Inf"}, 2),
        ("inferlane_request_stage_seconds_sum", {"stage": "read"}, 2e-4),
        ("inferlane_request_stage_seconds_sum", {"stage": "send"}, 2.2e-3),
        ("inferlane_request_stage_seconds_bucket", {"stage": "parse", "le": "0.0001"}, 0),
        ("inferlane_request_stage_seconds_bucket", {"stage": "parse", "le": "0.0002"}, 2),
        ("inferlane_requests_total", {"outcome": "ok"}, 2),
        ("inferlane_requests_total", {"outcome": "timeout"}, 1),
        ("inferlane_requests_total", {"outcome": "overloaded"}, 0),
        ("inferlane_inference_rows_total", {}, 5),
        ("inferlane_batch_size_rows_bucket", {"le": "4.0"}, 0),
        ("inferlane_batch_size_rows_bucket", {"le": "8.0"}, 1),
        ("inferlane_batch_size_rows_sum", {}, 5),
        ("inferlane_batch_requests_sum", {}, 2),
        ("inferlane_batch_fill_ratio_sum", {}, 0.625),
        ("inferlane_batch_fill_ratio_bucket", {"le": "0.625"}, 1),
        ("inferlane_bucket_dispatches_total", {"bucket": "8x32"}, 1),
        ("inferlane_bucket_rows_total", {"bucket": "8x32"}, 5),
        ("inferlane_bucket_padded_rows_total", {"bucket": "8x32"}, 8),
        ("inferlane_bucket_stage_seconds_total", {"bucket": "8x32", "stage": "h2d"}, 0.5),
        ("inferlane_bucket_stage_seconds_total", {"bucket": "8x32", "stage": "compute"}, 0.5),
        ("inferlane_bucket_stage_seconds_total", {"bucket": "8x32", "stage": "d2h"}, 1),
        ("inferlane_lane_busy_seconds_total", {"lane": "1"}, 2),
        ("inferlane_queue_requests", {}, 6),
        ("inferlane_queue_bytes", {}, 600),
        ("inferlane_in_flight_requests", {}, 9),
        ("inferlane_lanes", {}, 4),
        ("inferlane_lanes_busy", {}, 3),
        ("inferlane_model_loaded", {}, 1),
    ],
)
def test_samples(registry, name, labels, value):
    assert registry.get_sample_value(name, {**LABELS, **labels}) == pytest.approx(value)


def test_the_cost_of_asking_the_gpu(registry):
    assert registry.get_sample_value("inferlane_gpu_sampling_seconds_total", {"gpu_uuid": "GPU-1"}) == 2.5


def test_processes(registry):
    assert registry.get_sample_value("inferlane_front_ends") == 1
    assert registry.get_sample_value("inferlane_front_end_held_bytes", {"process": "front_end_1"}) == 4096
    assert registry.get_sample_value("inferlane_process_restarts_total", {"process": "front_end_1"}) == 2


def test_every_declared_metric_is_collected_with_its_labels(registry):
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    for spec in (*OWN, *TRITON):
        for name in sample_names(spec):
            found = [set(sample.labels) - {"le"} for sample in samples if sample.name == name]
            assert found, name
            assert all(labels == set(spec.labels) for labels in found), name


def test_nothing_undeclared_is_collected(registry):
    declared = {name for spec in (*OWN, *TRITON) for name in sample_names(spec)}
    collected = {sample.name for metric in registry.collect() for sample in metric.samples}
    assert {name for name in collected if name.startswith(("inferlane_", "nv_"))} == declared


def test_every_reason_is_there_from_the_start(registry):
    outcomes = {
        sample.labels["outcome"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "inferlane_requests_total"
    }
    assert outcomes == {"ok", *REASONS}

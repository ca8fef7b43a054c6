import pytest
from prometheus_client import CollectorRegistry

from service import errors
from service.buckets import Bucket
from service.requests import BatchTimings, StageTimings
from service.telemetry.metrics import REASONS
from service.telemetry.recorder import ModelGauges, Recorder
from service.telemetry.triton_names import TRITON_REASONS, triton_reason

LABELS = {"model": "m", "version": "1"}
TIMINGS = StageTimings(*(us * 1000 for us in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)), 1024_000)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.Overloaded, "REJECTED"),
        (errors.DeadlineExceeded, "REJECTED"),
        (errors.NotReady, "REJECTED"),
        (errors.ShuttingDown, "REJECTED"),
        (errors.ClientGone, "CANCELED"),
        (errors.ExecutionFailed, "BACKEND"),
        (errors.InvalidInput, "OTHER"),
        (errors.ServiceError, "OTHER"),
    ],
)
def test_reasons(error, expected):
    assert triton_reason(error.reason) == expected


def test_every_reason_is_one_of_tritons():
    assert {triton_reason(reason) for reason in REASONS} == set(TRITON_REASONS)


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    recorder = Recorder(registry=registry, triton_names_enabled=True)
    model = recorder.for_model("m", "1", ModelGauges(lambda: 6, *[lambda: 0] * 4))
    model.record_request(TIMINGS, 3)
    model.record_batch(Bucket(4), 3, 1, BatchTimings(0, 1, 2, 3), 0)
    for reason in ("overloaded", "timeout", "cancelled", "execution", "invalid", "internal"):
        model.record_failure(reason)
    return registry


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("request_success", {}, 1),
        ("request_failure", {"reason": "REJECTED"}, 2),
        ("request_failure", {"reason": "CANCELED"}, 1),
        ("request_failure", {"reason": "BACKEND"}, 1),
        ("request_failure", {"reason": "OTHER"}, 2),
        ("count", {}, 3),
        ("exec_count", {}, 1),
        ("request_duration_us", {}, 2047),
        ("queue_duration_us", {}, 24),
        ("compute_input_duration_us", {}, 32),
        ("compute_infer_duration_us", {}, 64),
        ("compute_output_duration_us", {}, 128),
        ("pending_request_count", {}, 6),
    ],
)
def test_samples(registry, name, labels, value):
    assert registry.get_sample_value(f"nv_inference_{name}", {**LABELS, **labels}) == value

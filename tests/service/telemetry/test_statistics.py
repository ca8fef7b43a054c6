import pytest

from service.buckets import Bucket
from service.requests import BatchTimings, StageTimings
from service.telemetry.model_recorder import BufferedModelRecorder
from service.telemetry.statistics import BatchStatistics, DurationStatistics, ModelStatistics

TIMINGS = StageTimings(
    read=1, parse=2, prepare=4, queue=8, dispatch=16, h2d=32, compute=64, d2h=128, complete=256, render=512, send=1024
)


@pytest.fixture
def statistics():
    recorder = BufferedModelRecorder("m", "1", lambda: 1_700_000_000_123)
    recorder.record_request(TIMINGS, 2)
    recorder.record_request(TIMINGS, 1)
    recorder.record_batch(Bucket(4), 3, 2, BatchTimings(100, 110, 150, 155), 0)
    recorder.record_batch(Bucket(1), 1, 1, BatchTimings(200, 201, 203, 206), 0)
    recorder.record_failure("overloaded")
    recorder.record_failure("invalid")
    recorder.record_failure("invalid")
    return ModelStatistics.of(recorder.figures(None))


def test_statistics_of_figures(statistics):
    assert statistics == ModelStatistics(
        last_inference_unix_ms=1_700_000_000_123,
        inference_count=3,
        execution_count=2,
        success=DurationStatistics(2, 2 * 2047),
        fail=DurationStatistics(3, 0),
        queue=DurationStatistics(2, 2 * 24),
        compute_input=DurationStatistics(2, 64),
        compute_infer=DurationStatistics(2, 128),
        compute_output=DurationStatistics(2, 256),
        batch_stats=(
            BatchStatistics(1, DurationStatistics(1, 1), DurationStatistics(1, 2), DurationStatistics(1, 3)),
            BatchStatistics(3, DurationStatistics(1, 10), DurationStatistics(1, 40), DurationStatistics(1, 5)),
        ),
    )


def test_json(statistics):
    json = statistics.to_json("m", "1")
    assert list(json) == [
        "name",
        "version",
        "last_inference",
        "inference_count",
        "execution_count",
        "inference_stats",
        "response_stats",
        "batch_stats",
        "memory_usage",
    ]
    assert (json["name"], json["version"], json["last_inference"]) == ("m", "1", 1_700_000_000_123)
    assert json["inference_stats"] == {
        "success": {"count": 2, "ns": 4094},
        "fail": {"count": 3, "ns": 0},
        "queue": {"count": 2, "ns": 48},
        "compute_input": {"count": 2, "ns": 64},
        "compute_infer": {"count": 2, "ns": 128},
        "compute_output": {"count": 2, "ns": 256},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    assert json["batch_stats"][1] == {
        "batch_size": 3,
        "compute_input": {"count": 1, "ns": 10},
        "compute_infer": {"count": 1, "ns": 40},
        "compute_output": {"count": 1, "ns": 5},
    }


def test_every_number_is_a_plain_integer(statistics):
    def numbers(value):
        if isinstance(value, dict):
            return [number for member in value.values() for number in numbers(member)]
        if isinstance(value, list):
            return [number for member in value for number in numbers(member)]
        return [] if isinstance(value, str) else [value]

    assert {type(number) for number in numbers(statistics.to_json("m", "1"))} == {int}

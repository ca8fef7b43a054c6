import inspect

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from service.buckets import Bucket
from service.requests import BatchTimings, StageTimings
from service.telemetry.metrics import REASONS, STAGES
from service.telemetry.recorder import ModelGauges, NullRecorder, Recorder
from service.telemetry.statistics import ModelStatistics

TIMINGS = StageTimings(*range(1, len(STAGES) + 1))
BATCH_TIMINGS = BatchTimings(100, 110, 150, 155)
LABELS = {"model": "m", "version": "1"}


def gauges(queued=0):
    return ModelGauges(lambda: queued, lambda: 10 * queued, lambda: 2, lambda: 4, lambda: 3)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def recorder(registry):
    return Recorder(registry=registry, triton_names_enabled=True, clock_unix_ms=lambda: 5)


def test_a_reload_keeps_the_counters_and_takes_the_new_gauges(recorder, registry):
    recorder.for_model("m", "1", gauges(1)).record_request(TIMINGS, 1)
    recorder.for_model("m", "1", gauges(7)).record_request(TIMINGS, 1)
    assert registry.get_sample_value("inferlane_requests_total", {**LABELS, "outcome": "ok"}) == 2
    assert registry.get_sample_value("inferlane_queue_requests", LABELS) == 7


def test_versions_are_separate(recorder):
    recorder.for_model("m", "1", gauges()).record_request(TIMINGS, 1)
    recorder.for_model("m", "2", gauges()).record_request(TIMINGS, 5)
    assert [recorder.statistics("m", version).inference_count for version in ("1", "2")] == [1, 5]


def test_an_unloaded_model_keeps_its_counters_and_loses_its_gauges(recorder, registry):
    recorder.for_model("m", "1", gauges()).record_request(TIMINGS, 1)
    assert registry.get_sample_value("inferlane_model_loaded", LABELS) == 1
    recorder.forget("m", "1")
    recorder.forget("m", "1")
    assert registry.get_sample_value("inferlane_model_loaded", LABELS) == 0
    assert registry.get_sample_value("inferlane_queue_requests", LABELS) is None
    assert registry.get_sample_value("nv_inference_pending_request_count", LABELS) is None
    assert registry.get_sample_value("inferlane_inference_rows_total", LABELS) == 1


def test_failures_of_no_model(recorder, registry):
    recorder.record_unattributed("not_found")
    recorder.record_unattributed("a model's name")
    counts = recorder.figures().unattributed_failures
    assert {reason: count for reason, count in counts.items() if count} == {"not_found": 1, "internal": 1}
    assert registry.get_sample_value("inferlane_unattributed_failures_total", {"reason": "not_found"}) == 1


def test_loop_lag(recorder, registry):
    recorder.record_loop_lag(30_000)
    recorder.record_loop_lag(2_000_000_000)
    assert registry.get_sample_value("inferlane_event_loop_lag_seconds_bucket", {"le": "5e-05"}) == 1
    assert registry.get_sample_value("inferlane_event_loop_lag_seconds_sum") == 2.00003


def test_streams(recorder, registry):
    assert registry.get_sample_value("inferlane_streams") == 0
    for change in (1, 1, -1):
        recorder.record_streams(change)
    recorder.record_dropped_frame()
    assert registry.get_sample_value("inferlane_streams") == 1
    assert registry.get_sample_value("inferlane_stream_frames_dropped_total") == 1


def test_statistics(recorder):
    model = recorder.for_model("m", "1", gauges())
    model.record_request(TIMINGS, 3)
    model.record_batch(Bucket(4), 3, 1, BATCH_TIMINGS, 0)
    model.record_failure("timeout")
    statistics = recorder.statistics("m", "1")
    assert (statistics.inference_count, statistics.execution_count, statistics.last_inference_unix_ms) == (3, 1, 5)
    assert (statistics.success.count, statistics.fail.count) == (1, 1)
    assert recorder.statistics("m", "2") == ModelStatistics()


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        pytest.param("", "text/plain", parse_text, id="none"),
        pytest.param("*/*", "text/plain", parse_text, id="anything"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text",
            parse_openmetrics,
            id="prometheus",
        ),
    ],
)
def test_exposition_is_what_the_header_asks_for(recorder, accept, content_type, parse):
    model = recorder.for_model("m", "1", gauges())
    model.record_request(TIMINGS, 3)
    payload, sent_type = recorder.expose(accept)
    assert sent_type.startswith(content_type)
    samples = {sample.name: sample for family in parse(payload.decode()) for sample in family.samples}
    assert samples["inferlane_inference_rows_total"].value == 3
    assert {"python_info", "python_gc_collections_total", "nv_inference_count"} <= samples.keys()


def test_names_that_the_registry_already_has_are_refused(registry):
    Gauge("inferlane_lanes", "Another's.", registry=registry)
    with pytest.raises(ValueError, match="inferlane_lanes"):
        Recorder(registry=registry, triton_names_enabled=False)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_tritons_names_are_switchable(registry, is_enabled):
    recorder = Recorder(registry=registry, triton_names_enabled=is_enabled)
    recorder.for_model("m", "1", gauges())
    assert (b"nv_inference" in recorder.expose()[0]) == is_enabled


def public(cls):
    return {name: inspect.signature(member) for name, member in vars(cls).items() if not name.startswith("_")}


def test_the_null_recorder_overrides_everything():
    assert public(NullRecorder) == public(Recorder)


def test_the_null_recorder_records_nothing():
    recorder = NullRecorder()
    model = recorder.for_model("m", "1", gauges())
    model.record_request(TIMINGS, 1)
    model.record_failure("timeout")
    model.record_batch(Bucket(1), 1, 1, BATCH_TIMINGS, 0)
    recorder.record_unattributed("not_found")
    recorder.record_loop_lag(1)
    recorder.forget("m", "1")
    assert recorder.model_figures("m", "1") is None
    assert recorder.loop_lag().count() == 0
    figures = recorder.figures()
    assert (figures.models, figures.loop_lag.count()) == ((), 0)
    assert figures.unattributed_failures == dict.fromkeys(REASONS, 0)
    assert recorder.statistics("m", "1") == ModelStatistics()
    assert recorder.expose()[0] == b""


def test_figures_of_one_model_alone(recorder):
    recorder.for_model("m", "1", gauges()).record_request(TIMINGS, 3)
    figures = recorder.model_figures("m", "1")
    assert figures is not None
    assert figures.requests.rows == 3
    assert recorder.model_figures("m", "2") is None


def test_the_loop_s_lateness_can_be_asked_for(recorder):
    recorder.record_loop_lag(3_000_000)
    assert recorder.loop_lag().sums == (3_000_000,)

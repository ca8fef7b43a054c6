from prometheus_client import CollectorRegistry

from service.telemetry.recorder import Recorder
from service.telemetry.recorder_cost import BUCKETS, GAUGES, MODELS, loaded_recorder, note, record


def test_it_records_a_batch_for_as_many_requests_as_told():
    recorder = Recorder(registry=CollectorRegistry(), triton_names_enabled=False)
    record(recorder.for_model("m", "1", GAUGES), 24, 8)
    statistics = recorder.statistics("m", "1")
    assert (statistics.success.count, statistics.execution_count) == (24, 3)


def test_the_scraped_recorder_has_used_every_bucket():
    models = loaded_recorder(CollectorRegistry()).figures().models
    assert [len(model.bucket_labels) for model in models] == [len(BUCKETS)] * MODELS


def test_the_notes_of_a_request_are_those_of_the_route_and_the_batcher():
    activity = note(24, 8)
    assert activity.arrivals.marks().requests == 24
    marks = activity.marks(24)
    assert (marks.in_flight.inside, marks.waiting.inside) == (0, 0)

import pytest
from prometheus_client import CollectorRegistry

from service.buckets import Bucket
from service.device_figures import GraphMiss, LaneFigures, MemoryOwner, MissReason
from service.telemetry.metrics import MAX_BUCKET_LABELS, OTHER_BUCKETS
from service.telemetry.recorder import ModelGauges, Recorder

LABELS = {"model": "m", "version": "1"}
GRAPH, EAGER = Bucket(8, (32,)), Bucket(1, (32,))
LANE = LaneFigures(
    replays={GRAPH: 5, EAGER: 0},
    eager_runs={GRAPH: 0, EAGER: 2},
    graph_misses={EAGER: GraphMiss(MissReason.NOT_CAPTURABLE, "TensorRT's words")},
    h2d_bytes=4096,
    d2h_bytes=128,
    device_bytes={MemoryOwner.SCRATCH: 1 << 20, MemoryOwner.GRAPHS: 1 << 10},
)


def gauges(*lanes, weights_bytes=0):
    nothing = (int,) * 5
    return ModelGauges(*nothing, lane_figures=lambda: lanes, weights_bytes=lambda: weights_bytes)


def registry_of(*lanes, weights_bytes=0):
    registry = CollectorRegistry()
    recorder = Recorder(registry=registry, triton_names_enabled=False)
    recorder.for_model("m", "1", gauges(*lanes, weights_bytes=weights_bytes))
    return registry


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("inferlane_graph_replays_total", {"bucket": "8x32"}, 10),
        ("inferlane_graph_replays_total", {"bucket": "1x32"}, 0),
        ("inferlane_eager_runs_total", {"bucket": "8x32"}, 0),
        ("inferlane_eager_runs_total", {"bucket": "1x32"}, 4),
        ("inferlane_graphs_missing", {"bucket": "1x32", "reason": "not_capturable"}, 2),
        ("inferlane_graphs_missing", {"bucket": "8x32", "reason": "not_capturable"}, None),
        ("inferlane_copied_bytes_total", {"direction": "h2d"}, 8192),
        ("inferlane_copied_bytes_total", {"direction": "d2h"}, 256),
        ("inferlane_device_memory_bytes", {"owner": "weights"}, 1 << 30),
        ("inferlane_device_memory_bytes", {"owner": "scratch"}, 2 << 20),
        ("inferlane_device_memory_bytes", {"owner": "graphs"}, 2 << 10),
    ],
)
def test_samples(name, labels, value):
    registry = registry_of(LANE, LANE, weights_bytes=1 << 30)
    assert registry.get_sample_value(name, {**LABELS, **labels}) == value


def test_a_model_on_the_cpu_has_no_samples():
    names = {
        sample.name
        for metric in registry_of(LaneFigures(), LaneFigures()).collect()
        for sample in metric.samples
        if "model" in sample.labels
    }
    assert names
    assert not [name for name in names if "graph" in name or "eager" in name or "copied" in name or "device" in name]


def test_buckets_beyond_the_bound_share_a_label():
    buckets = [Bucket(1, (dim,)) for dim in range(MAX_BUCKET_LABELS + 3)]
    miss = GraphMiss(MissReason.MEMORY_BUDGET, "words")
    lane = LaneFigures(replays=dict.fromkeys(buckets, 2), graph_misses=dict.fromkeys(buckets, miss))
    registry = registry_of(lane)
    other = {**LABELS, "bucket": OTHER_BUCKETS}
    assert registry.get_sample_value("inferlane_graph_replays_total", other) == 6
    assert registry.get_sample_value("inferlane_graphs_missing", {**other, "reason": "memory_budget"}) == 3


def test_an_unloaded_model_keeps_what_it_counted_and_holds_no_memory():
    registry = CollectorRegistry()
    recorder = Recorder(registry=registry, triton_names_enabled=False)
    recorder.for_model("m", "1", gauges(LANE))
    recorder.forget("m", "1")
    recorder.forget("m", "1")
    assert registry.get_sample_value("inferlane_graph_replays_total", {**LABELS, "bucket": "8x32"}) == 5
    memory = {**LABELS, "owner": "scratch"}
    assert registry.get_sample_value("inferlane_device_memory_bytes", memory) is None
    recorder.for_model("m", "1", gauges(LANE))
    recorder.for_model("m", "1", gauges(LANE))
    assert registry.get_sample_value("inferlane_graph_replays_total", {**LABELS, "bucket": "8x32"}) == 15
    assert registry.get_sample_value("inferlane_copied_bytes_total", {**LABELS, "direction": "h2d"}) == 3 * 4096
    assert registry.get_sample_value("inferlane_device_memory_bytes", memory) == 1 << 20

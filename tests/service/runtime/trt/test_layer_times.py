"""Layers timed beside the lanes, in every generation of TensorRT."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.buckets import Bucket
from service.cards import PrecisionCard
from service.errors import ExecutionFailed
from service.runtime.cuda.device import LiveCounts
from service.runtime.layer_trace import Operation, OperationKind, TracedLayer
from service.runtime.trt.inspector import LayerInfo
from service.runtime.trt.layer_times import join, times_by_layer, with_onnx
from service.runtime.trt.probe import SPAN_LAUNCHES
from tests.doubles.layer_cases import LayerCases
from tests.doubles.trt_models import DOUBLE
from tests.service.runtime.trt.conftest import FakeBench, MakeBench

RUNS = 3


class TestLayers(LayerCases):
    """What also runs on a real GPU."""


@pytest.mark.parametrize(("bucket", "name"), [(Bucket(2, (4,)), "double"), (Bucket(2, (16,)), "double [profile 1]")])
def test_layers_of_the_bucket_s_own_profile_and_shapes(bench: FakeBench, bucket: Bucket, name: str) -> None:
    backend = bench.open("sequence")
    with backend.create_layer_probe(bucket) as probe:
        trace = probe.layers(RUNS)
    assert [layer.time_s for layer in trace.layers] == [0.0005]
    (operation,) = (layer.operation for layer in trace.layers)
    assert operation.name == name
    assert (trace.runs, trace.is_replayed, trace.are_overlapping) == (RUNS, True, False)
    assert trace.span_s > 0
    if bench.generation == "11-lean":
        assert operation.kind is OperationKind.UNKNOWN
        return
    assert operation.kind is OperationKind.POINTWISE
    assert [operand.dims for operand in operation.inputs] == [(2, bucket.dims[0])]
    assert operation.dtype == "FP32"


def test_every_run_is_a_replay_and_all_is_freed(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    backend = bench.open("double")
    with backend.create_layer_probe(Bucket(4)) as probe:
        before, graphs = bench.cuda.live, bench.api.calls["cudaGraphLaunch"]
        probe.layers(RUNS)
        assert bench.cuda.live == before
        warm_up, first_report = 1, 1
        assert bench.api.calls["cudaGraphLaunch"] - graphs == warm_up + first_report + RUNS * (SPAN_LAUNCHES + 1)
    assert bench.cuda.live == LiveCounts()


def test_times_are_medians_of_the_runs(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    times = itertools.chain([9.0], [1.0, 4.0, 2.0])
    bench.world.layer_ms = lambda: next(times)
    with bench.open("double").create_layer_probe(Bucket(1)) as probe:
        assert [layer.time_s for layer in probe.layers(RUNS).layers] == [0.002]


def test_the_span_is_that_of_runs_without_the_profiler(make_bench: MakeBench) -> None:
    device = itertools.count(step=5000)
    bench = make_bench("10", clock=lambda: next(device))
    with bench.open("double").create_layer_probe(Bucket(1)) as probe:
        assert probe.layers(RUNS).span_s == pytest.approx(5000 / SPAN_LAUNCHES / 1e9)


def test_where_graphs_tell_nothing_enqueues_do(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    bench.world.faults.reports = "replays"
    with bench.open("double").create_layer_probe(Bucket(1)) as probe:
        trace = probe.layers(RUNS)
    assert not trace.is_replayed
    assert len(trace.layers) == 1


def test_without_a_graph_layers_run_eagerly(make_bench: MakeBench) -> None:
    bench = make_bench("10", models={"double": replace(DOUBLE, is_capturable=False)})
    with bench.open("double").create_layer_probe(Bucket(1)) as probe:
        assert not probe.layers(1).is_replayed


def test_outputs_sized_by_data_are_no_hindrance(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    backend = bench.open("select")
    with backend.create_layer_probe(next(iter(backend.spec.buckets.known()))) as probe:
        assert len(probe.layers(2).layers) == 1


def make_product(path: Path) -> Path:
    """`x: FP32[batch, 8] -> z: FP32[batch, 3]`, a product and a ReLU."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="/fc"),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])]
        for name, width in (("x", 8), ("z", 3))
    ]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(np.ones((8, 3), np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(("precision", "dtype"), [("as-is", "FP32"), ("fp16", "FP16"), ("bf16", "BF16"), ("int8", "")])
def test_what_the_onnx_model_says(make_bench: MakeBench, tmp_path: Path, precision: str, dtype: str) -> None:
    """The plan's one layer stands for a whole model: its products in the bucket's shapes."""
    model = make_product(tmp_path / "m.onnx")
    bench = make_bench("10")
    backend = bench.open("double", precision=PrecisionCard(mode=precision))
    region = Operation(name="{ForeignNode[/fc...z]}", word="Myelin", kind=OperationKind.UNKNOWN)
    with backend.create_layer_probe(Bucket(2)) as probe:
        trace = replace(probe.layers(1), layers=(TracedLayer(region, (1.0,)),))
        assert with_onnx(trace, probe._subject, tmp_path / "none.onnx") == trace
        (layer,) = with_onnx(trace, probe._subject, model).layers
        probe.onnx_path = model
        assert len(probe.layers(1).layers) == 1
    assert (layer.operation.kind, layer.operation.dtype) == (OperationKind.REGION, dtype)
    assert layer.operation.known_flops == 2 * 2 * 8 * 3


def test_a_profiler_that_hears_nothing_is_an_error_and_leaves_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    bench.world.faults.reports = "all"
    with bench.open("double").create_layer_probe(Bucket(1)) as probe:
        before = bench.cuda.live
        with pytest.raises(ExecutionFailed, match="told its profiler of no layer"):
            probe.layers(RUNS)
        assert bench.cuda.live == before


def test_names_that_repeat_are_told_apart_by_their_order() -> None:
    reports = [[("a", 1.0), ("b", 5.0), ("a", 3.0)], [("a", 2.0), ("b", 5.0), ("a", 4.0)]]
    assert times_by_layer(reports) == [("a", (0.001, 0.002)), ("b", (0.005, 0.005)), ("a", (0.003, 0.004))]
    first, second = LayerInfo("a [profile 1]", "CaskConvolution", {}), LayerInfo("a", "Reformat", {})
    traced = join(times_by_layer(reports), [first, LayerInfo("unused", "Constant", {}), second])
    assert [layer.operation.word for layer in traced] == ["CaskConvolution", "", "Reformat"]

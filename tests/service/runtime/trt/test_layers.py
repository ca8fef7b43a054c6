"""Layers with the shapes of every profile's optimum, in every generation of TensorRT."""

from __future__ import annotations

import pytest

from service.runtime.cuda.device import LiveCounts
from service.runtime.cuda.stream import Stream
from service.runtime.trt.inspector import inspect
from service.runtime.trt.layers import layers_at_optimum
from tests.service.runtime.trt.conftest import FakeBench, MakeBench


def test_each_profile_s_layers_have_its_optimum_s_shapes(bench: FakeBench) -> None:
    engine = bench.open("sequence")._engine
    with Stream(bench.cuda) as stream:
        info = layers_at_optimum(engine, stream=stream)
    if bench.generation == "11-lean":
        assert info is None
        return
    assert info is not None
    assert [layer.name for layer in info.layers] == ["double", "double [profile 1]"]
    assert [layer.inputs[0].dims for layer in info.layers] == [(4, 4), (2, 16)]
    assert [layer.outputs[0].dims for layer in info.layers] == [(4, 4), (2, 16)]
    assert [layer.precision for layer in info.layers] == ["FP32", "FP32"]
    assert info.tensors == ("x", "y")


def test_without_a_context_dynamic_shapes_are_not_told(make_bench: MakeBench) -> None:
    info = inspect(make_bench("10").open("double")._engine)
    assert info is not None
    assert info.layers[0].inputs[0].dims == (-1, 8)
    assert info.layers[0].precision == ""


@pytest.mark.parametrize("fault", ["context", "shapes"])
def test_a_profile_that_cannot_be_set_keeps_what_the_engine_says(make_bench: MakeBench, fault: str) -> None:
    bench = make_bench("10")
    engine = bench.open("double")._engine
    setattr(bench.world.faults, fault, "no")
    with Stream(bench.cuda) as stream:
        info = layers_at_optimum(engine, stream=stream)
    setattr(bench.world.faults, fault, "")
    assert info is not None
    assert [layer.inputs[0].dims for layer in info.layers] == [(-1, 8)]


def test_contexts_and_streams_are_gone_afterwards(make_bench: MakeBench) -> None:
    bench = make_bench("11")
    engine = bench.open("sequence")._engine
    before = len([death for death in bench.world.deaths if death == "context"])
    live = bench.cuda.live
    with Stream(bench.cuda) as stream:
        layers_at_optimum(engine, stream=stream)
    assert bench.world.deaths.count("context") == before + 2
    assert bench.cuda.live == live == LiveCounts()

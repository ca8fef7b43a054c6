"""Deserialising: every null is an error with TensorRT's words, every tensor that cannot be served is refused."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from service.errors import ExecutionFailed, ModelLoadFailed
from service.runtime.trt.engine import MAX_KEPT_ERRORS, Engine, ErrorLog, trt_check
from service.tensors import DType
from tests.doubles.fake_tensorrt_model import FakeModel, plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.trt_models import DOUBLE, PAIR, SEQUENCE
from tests.service.runtime.trt.conftest import FakeBench, MakeBench


def deserialise(bench: FakeBench, model: FakeModel, **options: Any) -> Engine:
    plan = plan_of(model, VERSIONS[bench.generation])
    return Engine.deserialise(bench.flavour, plan, "m.plan", **{"dims": {}, "host_code_allowed": False, **options})


def test_tensors_and_profiles(bench: FakeBench) -> None:
    engine = deserialise(bench, SEQUENCE)
    assert [(tensor.name, tensor.dtype, tensor.dims) for tensor in engine.inputs] == [("x", DType.FP32, ("x_0", "x_1"))]
    assert [tensor.dims for tensor in engine.outputs] == [("y_0", "y_1")]
    assert [profile["x"].max for profile in engine.profiles] == [(4, 8), (4, 16)]
    engine.close()


def test_names_of_dimensions_come_from_the_manifest_where_they_fit(make_bench: MakeBench) -> None:
    dims = {"x": ("batch", "sequence"), "y": ("batch", 3, "of another model")}
    engine = deserialise(make_bench(), SEQUENCE, dims=dims)
    assert engine.inputs[0].dims == ("batch", "sequence")
    assert engine.outputs[0].dims == ("y_0", "y_1")
    named = deserialise(make_bench(), DOUBLE, dims={"x": (4, "width")})
    assert named.inputs[0].dims == ("x_0", 8)


def test_an_input_without_dynamic_dimensions_needs_no_profile(make_bench: MakeBench) -> None:
    static = replace(DOUBLE, inputs={"x": ("FLOAT", (4, 8))}, outputs={"y": ("FLOAT", (4, 8))}, profiles=({},))
    assert deserialise(make_bench(), static).profiles[0]["x"].opt == (4, 8)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("HALF", DType.FP16), ("BF16", DType.BF16), ("INT64", DType.INT64), ("UINT8", DType.UINT8), ("BOOL", DType.BOOL)],
)
def test_types(make_bench: MakeBench, name: str, dtype: DType) -> None:
    model = replace(DOUBLE, inputs={"x": (name, (-1, 8))})
    assert deserialise(make_bench(), model).inputs[0].dtype is dtype


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (replace(DOUBLE, inputs={"x": ("FP8", (-1, 8))}), "tensor 'x' has type FP8, served are BF16, BOOL"),
        (replace(PAIR, host_tensors=frozenset({"d"})), "tensor 'd' holds a shape, which .* an output would tell"),
        (
            replace(DOUBLE, layouts={"y": "Two wide channel vectorized row major FP16 format"}),
            "'y' has the layout 'Two",
        ),
        (replace(DOUBLE, layouts={"x": "Channel major FP16 format where C % 8 == 0"}), "'x' has the layout 'Channel"),
    ],
)
def test_tensors_that_cannot_be_served(bench: FakeBench, model: FakeModel, said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=said):
        deserialise(bench, model)
    gc.collect()
    assert bench.world.deaths == ["engine", "runtime", "logger"]


@pytest.mark.parametrize("layout", ["Row-major linear FP32 format", "Row major linear format", ""])
def test_every_spelling_of_linear(make_bench: MakeBench, layout: str) -> None:
    assert deserialise(make_bench(), replace(DOUBLE, layouts={"x": layout})).inputs


def test_a_null_engine_gets_tensorrts_words(bench: FakeBench) -> None:
    bench.world.faults.engine = "Version tag does not match"
    with pytest.raises(ModelLoadFailed, match=r"cannot load m\.plan: Version tag does not match; build it again"):
        deserialise(bench, DOUBLE)


def test_a_runtime_that_does_not_start(bench: FakeBench) -> None:
    bench.world.faults.runtime = True
    with pytest.raises(ModelLoadFailed, match="is installed but does not start: no driver or GPU"):
        deserialise(bench, DOUBLE)


@pytest.mark.parametrize("allowed", [True, False])
def test_host_code_runs_only_where_it_is_allowed(make_bench: MakeBench, allowed: bool) -> None:
    engine = deserialise(make_bench(), DOUBLE, host_code_allowed=allowed)
    assert engine._runtime.engine_host_code_allowed is allowed


def test_death_comes_in_order(make_bench: MakeBench) -> None:
    bench = make_bench()
    engine = deserialise(bench, DOUBLE)
    engine.close()
    engine.close()
    assert bench.world.deaths == ["engine", "runtime", "logger"]


@pytest.mark.parametrize("value", [None, False])
def test_both_ways_to_say_no(value: object) -> None:
    errors = ErrorLog()
    errors.add(3, "  it is wrong ")
    errors.add(3, "it is wrong")
    with pytest.raises(ExecutionFailed, match=r"TensorRT refused the call: it is wrong$"):
        trt_check(value, "the call", errors, ExecutionFailed)
    with pytest.raises(ModelLoadFailed, match="it gave no reason"):
        trt_check(value, "the call", errors)


@pytest.mark.parametrize("value", [0, "", True, ()])
def test_whatever_else_is_an_answer(value: object) -> None:
    assert trt_check(value, "the call", ErrorLog()) is value


def test_the_recorder_answers_as_the_interface_asks(make_bench: MakeBench) -> None:
    recorder = deserialise(make_bench(), DOUBLE)._runtime.error_recorder
    assert recorder.num_errors() == 0
    for number in range(MAX_KEPT_ERRORS + 1):
        assert recorder.has_overflowed() == (number >= MAX_KEPT_ERRORS)
        assert recorder.report_error(number, f"error {number}") is False
    assert recorder.num_errors() == MAX_KEPT_ERRORS
    assert (recorder.get_error_code(0), recorder.get_error_desc(0)) == (1, "error 1")
    recorder.clear()
    assert recorder.num_errors() == 0

"""Inputs that are read on the host: bound where the profiles leave no choice, refused where they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.errors import ModelLoadFailed
from service.runtime.cuda.stream import Stream
from service.runtime.trt.buffers import ALIGNMENT_BYTES
from service.runtime.trt.context import Context
from service.runtime.trt.engine import Engine
from tests.doubles.fake_tensorrt_model import FakeModel, plan_of
from tests.doubles.fake_tensorrt_world import GENERATIONS, VERSIONS
from tests.doubles.trt_models import RESHAPE, WIDTH
from tests.service.runtime.trt.conftest import FakeBench, MakeBench


def deserialise(bench: FakeBench, model: FakeModel) -> Engine:
    plan = plan_of(model, VERSIONS[bench.generation])
    return Engine.deserialise(bench.flavour, plan, "m.plan", dims={}, host_code_allowed=False)


@pytest.fixture(params=[generation for generation in GENERATIONS if generation != "8.6"])
def telling(request: pytest.FixtureRequest, make_bench: MakeBench) -> FakeBench:
    """A TensorRT that tells the values of a profile; 8.6 tells the first alone."""
    return make_bench(request.param)


def with_ranges(*ranges: tuple[tuple[int, ...], ...]) -> FakeModel:
    return replace(RESHAPE, profiles=tuple({**RESHAPE.profiles[0], "shape": bounds} for bounds in ranges))


def test_what_the_profile_fixes_is_no_input_of_the_model(telling: FakeBench) -> None:
    engine = deserialise(telling, RESHAPE)
    assert [tensor.name for tensor in engine.inputs] == ["x"]
    assert set(engine.profiles[0]) == {"x"}
    values = engine.shape_inputs["shape"]
    np.testing.assert_array_equal(values, np.asarray([WIDTH, 4], np.int32))
    assert values.dtype == np.int32
    assert values.ctypes.data % ALIGNMENT_BYTES == 0


def test_shapes_follow_from_it(telling: FakeBench) -> None:
    engine = deserialise(telling, with_ranges(((2, 16),) * 3, ((2, 16),) * 3))
    with Stream(telling.cuda) as stream:
        context = Context.create(engine, 1, stream=stream)
        context.bind_shapes([(4, WIDTH)])
        assert context.outputs == ((2, 16),)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (with_ranges(((1, 4), (8, 4), (8, 4))), r"profile 0: \[1, 4\] to \[8, 4\]"),
        (with_ranges(((8, 4),) * 3, ((2, 16),) * 3), r"profile 1: \[2, 16\] to \[2, 16\]"),
        (replace(RESHAPE, inputs={**RESHAPE.inputs, "shape": ("INT32", (-1,))}), "min = opt = max"),
    ],
)
def test_a_choice_is_refused(telling: FakeBench, model: FakeModel, said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=rf"input 'shape' holds values that shapes follow from.*{said}"):
        deserialise(telling, model)


def test_values_that_are_not_told_are_refused(make_bench: MakeBench) -> None:
    with pytest.raises(ModelLoadFailed, match=r"tensorrt 8\.6\..* does not tell which ones its profiles fix"):
        deserialise(make_bench("8.6"), RESHAPE)


def test_values_that_are_refused(make_bench: MakeBench) -> None:
    bench = make_bench()
    engine = deserialise(bench, RESHAPE)
    bench.world.faults.addresses = frozenset({"shape"})
    with Stream(bench.cuda) as stream, pytest.raises(ModelLoadFailed, match=r"the values \[8, 4\] for input 'shape'"):
        Context.create(engine, 0, stream=stream).bind_shapes([(4, WIDTH)])

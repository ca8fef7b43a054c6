"""Contexts: made without scratch, bound once, and refused with TensorRT's words where it says no."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from service.errors import ModelLoadFailed
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.trt.context import Context, scratch_bytes
from service.runtime.trt.engine import Engine
from tests.doubles.fake_tensorrt_model import FakeModel, plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.trt_models import SELECT, SEQUENCE
from tests.service.runtime.trt.conftest import FakeBench, MakeBench


@pytest.fixture
def stream(bench: FakeBench) -> Iterator[Stream]:
    with Stream(bench.cuda) as stream:
        yield stream


def engine_of(bench: FakeBench, model: FakeModel = SEQUENCE) -> Engine:
    plan = plan_of(model, VERSIONS[bench.generation])
    return Engine.deserialise(bench.flavour, plan, "m.plan", dims={}, host_code_allowed=False)


def test_scratch_is_that_of_the_profile_where_tensorrt_knows_it(bench: FakeBench) -> None:
    engine = engine_of(bench)
    wanted = [4096, 4096] if bench.generation == "8.6" else [1024, 4096]
    assert [scratch_bytes(engine, profile) for profile in (0, 1)] == wanted


def test_no_context_has_scratch_of_its_own(bench: FakeBench, stream: Stream) -> None:
    Context.create(engine_of(bench), 0, stream=stream)
    assert bench.world.static_contexts == 0


def test_a_context_stays_on_its_profile(bench: FakeBench, stream: Stream) -> None:
    engine = engine_of(bench)
    wide = Context.create(engine, 1, stream=stream)
    wide.bind_shapes([(2, 16)])
    assert wide.outputs == ((2, 16),)
    narrow = Context.create(engine, 0, stream=stream)
    with pytest.raises(ModelLoadFailed, match=r"refused shape \[2, 16\] for input 'x': Set dimension"):
        narrow.bind_shapes([(2, 16)])


def test_an_output_whose_size_depends_on_data(bench: FakeBench, stream: Stream) -> None:
    context = Context.create(engine_of(bench, SELECT), 0, stream=stream)
    context.bind_shapes([(2, 8)])
    assert context.outputs == ((2, -1), (2, 8))


def test_an_allocator_that_is_refused(bench: FakeBench, stream: Stream) -> None:
    context = Context.create(engine_of(bench, SELECT), 0, stream=stream)
    context.bind_shapes([(2, 8)])
    bench.world.faults.addresses = frozenset({"indices"})
    with pytest.raises(ModelLoadFailed, match="an allocator for output 'indices': indices cannot have"):
        context.bind_allocator(["indices"], object())


def test_shapes_that_contradict_each_other(bench: FakeBench, stream: Stream) -> None:
    context = Context.create(engine_of(bench), 0, stream=stream)
    bench.world.faults.shapes = "broadcast of 3 and 4"
    with pytest.raises(ModelLoadFailed, match="cannot infer the shapes of the outputs: broadcast of 3 and 4"):
        context.bind_shapes([(1, 8)])


def test_no_context(bench: FakeBench, stream: Stream) -> None:
    engine = engine_of(bench)
    bench.world.faults.context = "out of memory"
    with pytest.raises(ModelLoadFailed, match="TensorRT refused an execution context: out of memory"):
        Context.create(engine, 0, stream=stream)


def test_an_address_that_is_refused(bench: FakeBench, stream: Stream) -> None:
    context = Context.create(engine_of(bench), 0, stream=stream)
    context.bind_shapes([(1, 8)])
    with DeviceBuffer(bench.cuda, 8192) as buffer, pytest.raises(ModelLoadFailed, match="for tensor 'y': address of y"):
        context.bind_memory(buffer, {"x": buffer.address, "y": buffer.address + 4})


@pytest.mark.parametrize("scratch_size", [None, 1023])
def test_scratch_must_be_there_and_large_enough(make_bench: MakeBench, scratch_size: int | None) -> None:
    bench = make_bench("11")
    buffer, scratch = DeviceBuffer(bench.cuda, 4096), DeviceBuffer(bench.cuda, scratch_size or 1)
    with Stream(bench.cuda) as stream, buffer, scratch:
        context = Context.create(engine_of(bench), 0, stream=stream)
        context.bind_shapes([(1, 8)])
        context.bind_memory(scratch if scratch_size else None, {"x": buffer.address, "y": buffer.address + 256})
        assert not context.enqueue(stream=stream)


def test_8_6_without_profile_sharing_has_one_context_per_profile(make_bench: MakeBench) -> None:
    bench = make_bench("8.6")
    engine = engine_of(bench, replace(SEQUENCE, shares_profiles=False))
    with Stream(bench.cuda) as stream:
        first, second = (Context.create(engine, profile, stream=stream) for profile in (0, 1))
        with pytest.raises(ModelLoadFailed, match=r"another context on profile 1: Profile 1 .*PROFILE_SHARING"):
            Context.create(engine, 1, stream=stream)
        second.close()
        Context.create(engine, 1, stream=stream)
        first.close()


def test_a_profile_that_does_not_exist(bench: FakeBench, stream: Stream) -> None:
    engine = engine_of(bench)
    deaths = bench.world.deaths.count("context")
    with pytest.raises(ModelLoadFailed, match="on profile 7"):
        Context.create(engine, 7, stream=stream)
    assert bench.world.deaths.count("context") == deaths + 1

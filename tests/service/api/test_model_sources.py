"""Which models a history watches, and what it is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from service.api.model_sources import ModelSources, model_facts
from service.cards import BatchingCard, ModelCard, PrecisionCard, ShapeRange
from service.models import ONNX_PLATFORM, TENSORRT_PLATFORM, build_spec
from service.tensors import DType, TensorSpec
from tests.doubles.held_repository import HeldRepository


async def test_a_source_per_load_of_a_model(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        repository.add("n")
        await repository.registry.start(None)
        sources = ModelSources(repository.registry, repository.recorder)
        first = {source.facts.name: source for source in sources()}
        assert set(first) == {"m", "n"}
        again = {source.facts.name: source for source in sources()}
        assert all(again[name] is first[name] for name in first)
        await repository.registry.load("m")
        reloaded = {source.facts.name: source for source in sources()}
        assert reloaded["m"] is not first["m"]
        assert reloaded["m"].activity is repository.registry.get("m").activity
        assert reloaded["n"] is first["n"]
        await repository.registry.unload("n")
        assert [source.facts.name for source in sources()] == ["m"]


async def test_what_a_source_tells(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        served = repository.registry.get("m")
        (source,) = ModelSources(repository.registry, repository.recorder)()
        assert source.ready_ns == served.activity.ready_ns > 0
        assert (source.lanes, source.lane_depth) == (served.batcher.lane_count, served.batcher.lane_depth)
        assert {bucket: round(cost_s * 1e9) for bucket, cost_s in source.costs_s.items()} == dict(
            served.costs.measured_ns
        )
        assert source.figures() is None, "this repository's recorder records nothing"


def spec(platform: str, **card):
    tensors = (TensorSpec("x", DType.FP32, ("n", "length")),), (TensorSpec("y", DType.FP32, ("n", "length")),)
    made = ModelCard(name="m", bucket_sizes={"length": (8, 32)}, **card)
    return build_spec(made, version="3", platform=platform, inputs=tensors[0], outputs=tensors[1])


def test_facts_of_a_model_on_the_cpu() -> None:
    batching = BatchingCard(max_batch_size=4, max_queue_delay_ns=20_000_000)
    facts = model_facts(spec(ONNX_PLATFORM, batching=batching, precision=PrecisionCard(mode="fp16")))
    assert (facts.name, facts.version, facts.backend, facts.task) == ("m", "3", "onnxruntime", "tensor")
    assert (facts.batch_sizes, facts.dim_names, facts.dim_sizes) == ((1, 2, 4), ("length",), ((8, 32),))
    assert facts.max_queue_delay_s == 0.02
    assert facts.precision == "", "ONNX Runtime serves the model as it is"
    assert not facts.has_media_form


def test_precision_of_a_plan_as_far_as_the_card_tells_it() -> None:
    assert model_facts(spec(TENSORRT_PLATFORM, precision=PrecisionCard(mode="fp16"))).precision == "FP16"
    assert model_facts(spec(TENSORRT_PLATFORM)).precision == ""
    assert model_facts(spec(TENSORRT_PLATFORM)).backend == "tensorrt"


def profile(opt: tuple[int, ...]) -> dict[str, ShapeRange]:
    return {"x": ShapeRange((1, 8), opt, (4, 32))}


def test_the_optimum_of_each_profile_counts_rows_and_dims() -> None:
    profiles = (profile((1, 8)), profile((4, 32)))
    assert model_facts(spec(TENSORRT_PLATFORM, profiles=profiles)).profile_opts == (8, 128)
    assert model_facts(spec(ONNX_PLATFORM, profiles=profiles)).profile_opts == (), "no profile runs there"
    assert model_facts(spec(TENSORRT_PLATFORM)).profile_opts == ()


def test_an_optimum_with_an_open_dimension_is_not_told() -> None:
    profiles = (profile((1, 8)), {"other": ShapeRange((1,), (1,), (1,))})
    made = replace(spec(TENSORRT_PLATFORM), card=ModelCard(name="m", profiles=profiles))
    assert model_facts(made).profile_opts == ()


async def test_buckets_have_the_profile_that_runs_them(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        backend = repository.registry.get("m").batcher.pool.backend
        assert ModelSources(repository.registry, repository.recorder)()[0].profiles == {}, "on the CPU there are none"
        backend.profiles = lambda bucket: (bucket.padded_size % 2, 7)
        (source,) = ModelSources(repository.registry, repository.recorder)()
        assert source.profiles == {bucket: bucket.padded_size % 2 for bucket in backend.spec.buckets.known()}

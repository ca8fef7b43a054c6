"""The bench of models on a fake GPU, in every generation of TensorRT that a test asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from service.buckets import Bucket
from service.requests import Batch
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from service.runtime.trt.lane import LANE_DEPTH, TensorRTLane
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import FakeModel, plan_of
from tests.doubles.fake_tensorrt_world import GENERATIONS, VERSIONS
from tests.doubles.trt_models import MODELS, TrtBench, assert_right, batch_in


class FakeBench(TrtBench):
    """Opens the fake's models too."""

    api: FakeCuda
    folder: Path
    generation: str

    @property
    def world(self):  # type: ignore[no-untyped-def]
        return self.flavour.module.world

    def write(self, name: str, model: FakeModel) -> Path:
        path = self.folder / f"{name}.plan"
        path.write_bytes(plan_of(model, VERSIONS[self.generation]))
        return path


MakeBench = Callable[..., FakeBench]


def batch(bench: TrtBench, size: int = 3, seed: int = 0) -> Batch:
    spec = bench.backends[-1].spec
    return batch_in(spec, Bucket(spec.buckets.padded_size(size) or 0), np.random.default_rng(seed), (size,))


def assert_works(bench: TrtBench, lane: TensorRTLane, seed: int = 9) -> None:
    """Enough batches that both buffer sets are used."""
    for turn in range(LANE_DEPTH + 1):
        each = batch(bench, seed=seed + turn)
        assert_right("double", each, lane.sync(lane.enqueue(each)).outputs)


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    benches: list[FakeBench] = []

    def make(generation: str = "10", *, models: dict[str, FakeModel] | None = None, **cuda: object) -> FakeBench:
        api = FakeCuda(is_deferred=True, **cuda)  # type: ignore[arg-type]
        flavour = describe("tensorrt", fake_tensorrt(api, generation))
        known = {**MODELS, **(models or {})}
        bench = FakeBench(Cuda(api), flavour, lambda name: bench.write(name, known[name]))  # type: ignore[arg-type]
        bench.api, bench.folder, bench.generation = api, tmp_path, generation
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()
        assert bench.api.violations == []


@pytest.fixture(params=GENERATIONS)
def bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> FakeBench:
    return make_bench(request.param)

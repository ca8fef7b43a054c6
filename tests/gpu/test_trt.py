"""`service.runtime.trt` on a real GPU: the cases of the fake, and what only real kernels can show.

Builds its engines itself, the smallest there are, with the TensorRT that is installed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.buckets import Bucket
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.synthetic import synthetic_batch
from service.runtime.trt.context import scratch_bytes
from service.runtime.trt.flavour import Flavour, find_flavour
from service.runtime.trt.inspector import inspect
from service.runtime.trt.plan import read_header
from service.tensors import HostArray
from tests.doubles.trt_cases import LaneCases
from tests.doubles.trt_models import MODELS, TrtBench, batch_in

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

CHANNELS = 8
SIDE = 16
IMAGE = (CHANNELS, SIDE, SIDE)
WEIGHTS = np.random.default_rng(11).standard_normal((2, CHANNELS, CHANNELS, 3, 3), np.float32) * np.float32(0.2)


def elementwise(trt: Any, network: Any, left: Any, right: Any, name: str, *, subtracts: bool = False) -> None:
    kind = trt.ElementWiseOperation.SUB if subtracts else trt.ElementWiseOperation.SUM
    output = network.add_elementwise(left, right, kind).get_output(0)
    output.name = name
    network.mark_output(output)


def add_double(trt: Any, network: Any, dims: tuple[int, ...]) -> None:
    x = network.add_input("x", trt.float32, dims)
    elementwise(trt, network, x, x, "y")


def add_pair(trt: Any, network: Any, dims: tuple[int, ...]) -> None:
    a, b = (network.add_input(name, trt.float32, dims) for name in ("a", "b"))
    elementwise(trt, network, a, b, "s")
    elementwise(trt, network, a, b, "d", subtracts=True)


def add_select(trt: Any, network: Any, dims: tuple[int, ...]) -> None:
    x = network.add_input("x", trt.float32, dims)
    indices = network.add_non_zero(x).get_output(0)
    indices.name = "indices"
    network.mark_output(indices)
    elementwise(trt, network, x, x, "y")


def add_reshape(trt: Any, network: Any, dims: tuple[int, ...]) -> None:
    layer = network.add_shuffle(network.add_input("x", trt.float32, dims))
    layer.set_input(1, network.add_input("shape", trt.int32, (2,)))
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))


def add_tower(trt: Any, network: Any, dims: tuple[int, ...]) -> None:
    """Two convolutions with a ReLU between: an engine with several kernels and memory between them."""
    tensor = network.add_input("x", trt.float32, dims)
    for index, weights in enumerate(WEIGHTS):
        layer = network.add_convolution_nd(tensor, CHANNELS, (3, 3), trt.Weights(weights), trt.Weights())
        layer.padding_nd = (1, 1)
        tensor = layer.get_output(0)
        if index == 0:
            tensor = network.add_activation(tensor, trt.ActivationType.RELU).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)


def tower(x: HostArray) -> HostArray:
    """What `add_tower` computes, by NumPy."""
    tensor = np.asarray(x, np.float64)
    for index, weights in enumerate(WEIGHTS):
        padded = np.pad(tensor, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        tensor = np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True)
        tensor = np.maximum(tensor, 0) if index == 0 else tensor
    return tensor.astype(np.float32)


TOWER_RANGES = ({"x": ((1, *IMAGE), (2, *IMAGE), (4, *IMAGE))}, {"x": ((4, *IMAGE), (8, *IMAGE), (16, *IMAGE))})
NETWORKS: dict[str, tuple[Callable[..., None], tuple[int, ...], Any]] = {
    "double": (add_double, MODELS["double"].inputs["x"][1], MODELS["double"].profiles),
    "pair": (add_pair, MODELS["pair"].inputs["a"][1], MODELS["pair"].profiles),
    "sequence": (add_double, MODELS["sequence"].inputs["x"][1], MODELS["sequence"].profiles),
    "wide": (add_double, MODELS["wide"].inputs["x"][1], MODELS["wide"].profiles),
    "long": (add_double, MODELS["long"].inputs["x"][1], MODELS["long"].profiles),
    "select": (add_select, MODELS["select"].inputs["x"][1], MODELS["select"].profiles),
    "reshape": (add_reshape, MODELS["reshape"].inputs["x"][1], MODELS["reshape"].profiles),
    "tower": (add_tower, (-1, *IMAGE), TOWER_RANGES),
}


def configure(trt: Any, config: Any) -> None:
    """The quickest build that this version offers, without libraries that the machine may lack."""
    config.builder_optimization_level = 0
    config.max_aux_streams = 0
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.clear_flag(trt.BuilderFlag.TF32)
    sources = config.get_tactic_sources()
    for name in ("CUBLAS", "CUBLAS_LT", "CUDNN"):
        if hasattr(trt.TacticSource, name):
            sources &= ~(1 << int(getattr(trt.TacticSource, name)))
    config.set_tactic_sources(sources)
    if hasattr(trt.PreviewFeature, "PROFILE_SHARING_0806"):
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)


def build(trt: Any, builder: Any, name: str) -> bytes:
    add, dims, profiles = NETWORKS[name]
    flags = trt.NetworkDefinitionCreationFlag
    flag = flags.STRONGLY_TYPED if hasattr(flags, "STRONGLY_TYPED") else flags.EXPLICIT_BATCH
    network = builder.create_network(1 << int(flag))
    add(trt, network, dims)
    config = builder.create_builder_config()
    configure(trt, config)
    for ranges in profiles:
        profile = builder.create_optimization_profile()
        for tensor, shapes in ranges.items():
            (profile.set_shape_input if tensor == "shape" else profile.set_shape)(tensor, *shapes)
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, f"TensorRT could not build {name}; its log says why"
    return bytes(plan)


@pytest.fixture(scope="session")
def flavour() -> Flavour:
    return find_flavour()


@pytest.fixture(scope="session")
def plan_path(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Builds a plan when it is first asked for."""
    trt, folder = flavour.module, tmp_path_factory.mktemp("plans")
    logger = trt.Logger(trt.Logger.WARNING)
    builders: list[Any] = []

    def path_of(name: str) -> Path:
        path = folder / f"{name}.plan"
        if not path.exists():
            if not builders:
                builders.append(trt.Builder(logger))
            path.write_bytes(build(trt, builders[0], name))
        return path

    yield path_of
    builders.clear()


@pytest.fixture(scope="session")
def process_cuda() -> Cuda:
    cuda = Cuda.load()
    cuda.use_device(0)
    return cuda


@pytest.fixture
def bench(process_cuda: Cuda, flavour: Flavour, plan_path: Callable[[str], Path]) -> Iterator[TrtBench]:
    bench = TrtBench(process_cuda, flavour, plan_path)
    yield bench
    bench.close()
    gc.collect()
    assert process_cuda.live == LiveCounts()
    assert int(process_cuda.api.cudaGetLastError()[0]) == 0, "an error was left behind for the next library"


class TestLane(LaneCases):
    """The cases of the fake."""


def test_the_header_is_that_of_the_builder(flavour: Flavour, plan_path: Callable[[str], Path]) -> None:
    header = read_header(plan_path("double").read_bytes(), "double.plan")
    assert header.version[:2] == flavour.version_numbers[:2]


def test_a_plan_that_was_cut_off_is_refused(
    process_cuda: Cuda, flavour: Flavour, plan_path: Callable[[str], Path], tmp_path: Path
) -> None:
    whole = plan_path("double").read_bytes()
    (tmp_path / "double.plan").write_bytes(whole[: len(whole) // 2])
    bench = TrtBench(process_cuda, flavour, lambda name: tmp_path / f"{name}.plan")
    with pytest.raises(ModelLoadFailed, match=r"cannot load double\.plan: .*build it again"):
        bench.open("double")


def test_convolutions_in_every_bucket(bench: TrtBench) -> None:
    backend = bench.open("tower")
    lane = bench.lane(backend)
    assert lane.figures().graph_misses == {}
    assert backend.spec.buckets.batch_sizes == (1, 2, 4, 8, 16)
    for bucket in backend.spec.buckets.known():
        batch = synthetic_batch(backend.spec, bucket)
        (got,) = lane.sync(lane.enqueue(batch)).outputs
        np.testing.assert_allclose(got[0], tower(batch.requests[0].inputs[0]), rtol=1e-3, atol=1e-3)


def test_eight_lanes_with_distinct_rows_do_not_mix(bench: TrtBench) -> None:
    """All lanes hold two batches at once, so scratch that two lanes shared would show."""
    backend = bench.open("tower")
    lanes = [bench.lane(backend) for _ in range(8)]
    rng = np.random.default_rng(8)
    for _ in range(5):
        sent = [(lane, batch) for lane in lanes for batch in batches(backend.spec, rng)]
        tickets = [lane.enqueue(batch) for lane, batch in sent]
        for (lane, batch), ticket in zip(sent, tickets, strict=True):
            for request, (got,) in zip(batch.requests, lane.sync(ticket).outputs, strict=True):
                np.testing.assert_allclose(got, tower(request.inputs[0]), rtol=1e-3, atol=1e-3)


def batches(spec: ModelSpec, rng: np.random.Generator) -> tuple[Batch, ...]:
    return (batch_in(spec, Bucket(8), rng, (3, 1, 4)), batch_in(spec, Bucket(2), rng, (1, 1)))


def test_scratch_and_layers_are_known(bench: TrtBench, plan_path: Callable[[str], Path]) -> None:
    engine = bench.open("tower")._engine
    assert all(scratch_bytes(engine, profile) >= 0 for profile in range(len(engine.profiles)))
    info = inspect(engine)
    if bench.flavour.capabilities.inspector:
        assert info is not None
        assert info.tensors == ("x", "y")
        assert any("onv" in layer.kind for layer in info.layers), info.layers


def test_device_memory_is_flat_after_the_warm_up(bench: TrtBench) -> None:
    backend = bench.open("tower")
    lane = bench.lane(backend)
    rng = np.random.default_rng(12)
    free = []
    for _ in range(3):
        for _ in range(20):
            for ticket in [lane.enqueue(batch) for batch in batches(backend.spec, rng)]:
                lane.sync(ticket)
        free.append(bench.cuda.memory_info().free_bytes)
    assert len(set(free)) == 1

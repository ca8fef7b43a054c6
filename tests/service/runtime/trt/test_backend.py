"""From a file to served rows: the checks in order, the specification, and the order of death."""

from __future__ import annotations

import gc
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.buckets import Bucket
from service.cards import BatchingCard, LanesCard, ModelCard, ShapeRange
from service.errors import CardError, DeviceError, ModelLoadFailed
from service.runtime.cuda.device import LiveCounts
from service.runtime.trt.manifest import manifest_path
from service.runtime.trt.profiles import unpinned
from service.tensors import DType, TensorSpec
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_tensorrt_model import FakeModel
from tests.doubles.trt_models import DOUBLE, SEQUENCE, assert_right, batch_in
from tests.service.runtime.trt.conftest import FakeBench, MakeBench


def write_manifest(path: Path, **changes: Any) -> None:
    content = path.read_bytes()
    built_on = {"gpu": "Fake GPU", "compute_capability": "9.0", "cuda": "13.0"}
    manifest = {
        "format": 1,
        "plan": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
        "built_on": built_on,
        **changes,
    }
    manifest_path(path).write_text(json.dumps(manifest))


def with_manifest(make_bench: MakeBench, model: FakeModel, **changes: Any) -> FakeBench:
    """A bench that opens `model` with a manifest beside its plan."""
    bench = make_bench()
    path = bench.write("m", model)
    write_manifest(path, **changes)
    bench.plan_path = lambda name: path
    return bench


def test_what_the_server_learns(bench: FakeBench) -> None:
    backend = bench.open("pair", lanes=LanesCard(count=3))
    spec = backend.spec
    assert (spec.name, spec.version, spec.platform) == ("pair", "1", "tensorrt_plan")
    assert [(tensor.name, tensor.dtype, tensor.dims) for tensor in spec.inputs] == [
        ("a", DType.FP32, ("batch", 3)),
        ("b", DType.FP32, ("batch", 3)),
    ]
    assert [tensor.name for tensor in spec.outputs] == ["s", "d"]
    assert spec.max_batch_size == 4
    assert spec.card.profiles[0]["a"] == ShapeRange((1, 3), (2, 3), (4, 3))
    assert (backend.lane_count, backend.lane_depth) == (3, 2)


def test_weights_are_what_deserialising_took(bench: FakeBench) -> None:
    assert bench.open("double").weights_bytes == DOUBLE.weights_bytes


def test_one_lane_unless_the_card_says_more(make_bench: MakeBench) -> None:
    assert make_bench().open("double").lane_count == 1


def test_buckets_of_dimensions_that_the_manifest_names(make_bench: MakeBench) -> None:
    dims = {"x": ["batch", "sequence"], "y": ["batch", "sequence"]}
    bench = with_manifest(make_bench, replace(SEQUENCE, profiles=SEQUENCE.profiles[:1]), dims=dims)
    spec = bench.open("m").spec
    assert spec.buckets.dim_names == ("sequence",)
    assert spec.buckets.dim_sizes == ((1, 2, 4, 8),)
    assert spec.outputs[0].dims == ("batch", "sequence")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan": {"bytes": 10_000, "sha256": ""}}, "is cut off"),
        ({"plan": {"bytes": 1, "sha256": ""}}, "not the plan that its manifest describes"),
        ({"built_on": {"gpu": "A", "compute_capability": "8.0", "cuda": "13.0"}}, "built for compute capability 8.0"),
        ({"built_on": {"gpu": "A", "compute_capability": "9.0", "cuda": "12.8"}}, "built with CUDA 12.8"),
    ],
)
def test_a_manifest_of_something_else(make_bench: MakeBench, changes: dict[str, Any], said: str) -> None:
    bench = with_manifest(make_bench, DOUBLE, **changes)
    with pytest.raises(ModelLoadFailed, match=said):
        bench.open("m")
    assert bench.world.deaths == []


def test_no_gpu_is_touched_before_the_plan_is_checked(make_bench: MakeBench) -> None:
    bench = make_bench()
    (bench.folder / "m.plan").write_bytes(b"no plan")
    bench.plan_path = lambda name: bench.folder / "m.plan"
    with pytest.raises(ModelLoadFailed, match="is not a TensorRT plan"):
        bench.open("m")
    assert not bench.api.calls


def test_a_gpu_that_is_not_there(make_bench: MakeBench) -> None:
    with pytest.raises(DeviceError, match=r"cudaErrorInvalidDevice.*cudaSetDevice\(7\)"):
        make_bench().open("double", lanes=LanesCard(device=7))


@pytest.mark.parametrize(
    ("model", "card", "error", "said"),
    [
        (DOUBLE, {"pad_values": {"z": 1.0}}, CardError, "names input 'z'"),
        (DOUBLE, {"pad_values": {"x": 1.0}, "dims": {"x": (1, 2, 3)}}, CardError, "contradicts the model"),
        (
            replace(DOUBLE, program="sum_rows"),
            {},
            ModelLoadFailed,
            "output 'y' of model 'm' has shape .1, 8. for a batch of 8",
        ),
        (
            SEQUENCE,
            {"dims": {"x": ("batch", "batch")}, "bucket_sizes": {}},
            ModelLoadFailed,
            "the batch in more than its leading dimension",
        ),
        (
            replace(DOUBLE, data_dependent=frozenset({"y"})),
            {},
            ModelLoadFailed,
            "y.* have sizes that depend on the data",
        ),
        (DOUBLE, {"batching": BatchingCard(max_batch_size=16)}, ModelLoadFailed, "no profile .* buckets 16 "),
    ],
)
def test_what_cannot_be_served_leaves_nothing(
    bench: FakeBench, model: FakeModel, card: dict[str, Any], error: type[Exception], said: str
) -> None:
    path = bench.write("m", model)
    bench.plan_path = lambda name: path
    with pytest.raises(error, match=said):
        bench.open("m", **card)
    gc.collect()
    assert bench.cuda.live == LiveCounts()
    assert bench.world.deaths[-3:] == ["engine", "runtime", "logger"]


def test_graphs_die_before_contexts_and_contexts_before_the_engine(bench: FakeBench) -> None:
    backend = bench.open("double")
    lane = bench.lane(backend)
    deaths = bench.world.deaths
    deaths.clear()
    destroy = bench.api.cudaGraphExecDestroy

    def destroy_graph(graph: Any) -> Any:
        deaths.append("graph")
        return destroy(graph)

    bench.api.cudaGraphExecDestroy = destroy_graph  # type: ignore[method-assign]
    lane.close()
    assert deaths == ["graph", "context"] * 8
    backend.close()
    assert deaths[16:] == ["engine", "runtime", "logger"]


def test_contexts_that_outlive_a_failed_warm_up_die_with_the_lane(make_bench: MakeBench) -> None:
    bench = make_bench()
    backend = bench.open("double")
    lane = bench.lane(backend, warm=False)
    bench.api.inject("cudaMemsetAsync", E.cudaErrorInvalidValue)
    bucket = next(backend.spec.buckets.known())
    with pytest.raises(DeviceError, match="cudaMemsetAsync"):
        lane.warm_up(bucket)
    lane.close()
    backend.close()
    assert bench.world.deaths[-4:] == ["context", "engine", "runtime", "logger"]
    assert bench.cuda.live == LiveCounts()


PINNED = replace(
    SEQUENCE,
    inputs={"x": ("FLOAT", (1, 16))},
    outputs={"y": ("FLOAT", (1, 16))},
    profiles=({"x": ((1, 16), (1, 16), (1, 16))},),
)
NAMES = {"x": ("batch", "sequence"), "y": ("batch", "sequence")}


class TestPinnedDimensions:
    """What every profile pins to one size is fixed in the engine; to the card it is a dimension with that bucket."""

    def test_the_card_names_them(self, make_bench: MakeBench) -> None:
        bench = make_bench("10", models={"pinned": PINNED})
        backend = bench.open("pinned", dims=NAMES, bucket_sizes={"batch": (1,), "sequence": (16,)})
        assert backend.spec.inputs[0].dims == ("batch", "sequence")
        assert [bucket.label for bucket in backend.spec.buckets.known()] == ["1x16"]
        batch = batch_in(backend.spec, Bucket(1, (16,)), np.random.default_rng(1), (1,))
        lane = bench.lane(backend)
        assert_right("sequence", batch, lane.sync(lane.enqueue(batch)).outputs)

    def test_other_sizes_are_outside_every_profile(self, make_bench: MakeBench) -> None:
        bench = make_bench("10", models={"pinned": PINNED})
        with pytest.raises(ModelLoadFailed, match=r"no profile of the engine allows the buckets 1x32"):
            bench.open("pinned", dims=NAMES, bucket_sizes={"batch": (1,), "sequence": (16, 32)})

    def test_without_names_they_are_fixed(self, make_bench: MakeBench) -> None:
        bench = make_bench("10", models={"pinned": PINNED})
        assert bench.open("pinned").spec.inputs[0].dims == (1, 16)

    @pytest.mark.parametrize(
        ("sizes", "dims"),
        [({}, ("rows", 16)), ({"width": (16,)}, ("rows", "width")), ({"batch": (1,)}, ("rows", 16))],
    )
    def test_names_of_the_onnx_model_count_for_rows_and_where_there_are_buckets(
        self, sizes: dict[str, tuple[int, ...]], dims: tuple[object, ...]
    ) -> None:
        tensor = TensorSpec("x", DType.FP32, (1, 16))
        card = ModelCard(name="m", bucket_sizes=sizes)
        (named,) = unpinned(card, (tensor,), {"x": ("rows", "width")})
        assert named.dims == dims
        assert unpinned(card, (tensor,), {"x": ("rows", "width", 3)}) == (tensor,)

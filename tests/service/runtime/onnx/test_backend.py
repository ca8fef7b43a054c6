from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from service.cards import BatchingCard, Completion, LanesCard, ModelCard, PrecisionCard
from service.errors import CardError, ModelLoadFailed
from service.runtime.onnx import backend as backend_module
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.protocol import Backend, Lane
from tests.doubles import onnx_models
from tests.doubles.onnx_batches import batch_of, request_of


def opened(path: Path, card: ModelCard, *, cpu_threads: int = 1) -> OnnxBackend:
    return OnnxBackend.open(card, version="3", model_path=path, cpu_threads=cpu_threads)


def test_spec_comes_from_the_model(tmp_path: Path) -> None:
    backend: Backend = opened(onnx_models.make_sequence(tmp_path / "m.onnx"), ModelCard(name="encoder"))
    spec = backend.spec
    assert (spec.name, spec.version, spec.platform) == ("encoder", "3", "onnxruntime_onnx")
    assert [tensor.dims for tensor in spec.inputs] == [("batch", "sequence")] * 2
    assert [tensor.dims for tensor in spec.outputs] == [("batch", "sequence", 8), ("batch", 8)]
    assert spec.has_batch_dim
    assert spec.buckets.is_exact
    assert backend.lane_depth == 1


@pytest.mark.parametrize(
    ("lanes", "cpu_threads", "lane_count", "threads"),
    [
        (LanesCard(), 8, 1, 8),
        (LanesCard(count=2), 8, 2, 4),
        (LanesCard(count=3), 2, 3, 1),
        (LanesCard(count=2, threads_per_lane=3), 8, 2, 3),
    ],
)
def test_threads_are_shared_by_the_lanes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lanes: LanesCard,
    cpu_threads: int,
    lane_count: int,
    threads: int,
) -> None:
    backend = opened(
        onnx_models.make_simple(tmp_path / "m.onnx"), ModelCard(name="m", lanes=lanes), cpu_threads=cpu_threads
    )
    seen: list[int] = []
    real = backend_module.open_session

    def spy(path: Path, *, threads: int) -> object:
        seen.append(threads)
        return real(path, threads=threads)

    monkeypatch.setattr(backend_module, "open_session", spy)
    lane: Lane = backend.create_lane(0)
    assert backend.lane_count == lane_count
    assert seen == [threads]
    lane.close()
    lane.close()
    backend.close()
    backend.close()


@pytest.mark.parametrize("value", [0.5, 300.0, -1.0])
def test_pad_value_that_does_not_fit_is_refused_at_once(tmp_path: Path, value: float) -> None:
    card = ModelCard(name="m", pad_values={"image": value})
    with pytest.raises(CardError, match=rf"image = {value} in \[padding\] does not fit UINT8"):
        opened(onnx_models.make_cnn(tmp_path / "m.onnx"), card)


@pytest.mark.parametrize(
    ("card", "keys"),
    [
        ({"precision": PrecisionCard(mode="fp16")}, "[precision],"),
        ({"precision": PrecisionCard(min_cosine=0.99)}, "[precision],"),
        ({"lanes": LanesCard(device=1)}, "device in [lanes],"),
        ({"lanes": LanesCard(graph_memory_bytes=0)}, "graph_memory_bytes in [lanes],"),
        ({"lanes": LanesCard(completion=Completion.SPIN)}, "completion in [lanes],"),
        ({"precision": PrecisionCard(mode="int8"), "lanes": LanesCard(device=2)}, "[precision] and device in [lanes],"),
    ],
)
def test_keys_that_do_nothing_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, card: dict[str, Any], keys: str
) -> None:
    opened(onnx_models.make_simple(tmp_path / "m.onnx"), ModelCard(name="m", **card))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"model 'm': its card sets {keys} which ONNX Runtime does not use")


def test_a_card_of_keys_that_do_something_is_no_cause_for_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(onnx_models.make_simple(tmp_path / "m.onnx"), ModelCard(name="m", lanes=LanesCard(count=2)))
    assert caplog.records == []


def test_batch_in_a_second_dimension_is_refused(tmp_path: Path) -> None:
    path = onnx_models.make_identity(tmp_path / "m.onnx", dims=("batch", "batch"))
    with pytest.raises(ModelLoadFailed, match=r"input 'x' .* more than its leading dimension.*max_batch_size = 0"):
        opened(path, ModelCard(name="m"))


def test_text_next_to_bfloat16_is_refused(tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info(name, element_type, ["batch"])
        for element_type, names in ((TensorProto.STRING, "ab"), (TensorProto.BFLOAT16, "cd"))
        for name in names
    ]
    nodes = [helper.make_node("Identity", ["a"], ["b"]), helper.make_node("Identity", ["c"], ["d"])]
    graph = helper.make_graph(nodes, "g", values[::2], values[1::2])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(ModelLoadFailed, match="both BYTES and BF16"):
        opened(path, ModelCard(name="m"))


def test_dynamic_leading_dim_that_is_no_batch_is_served_at_its_size(tmp_path: Path) -> None:
    path = onnx_models.make_batch_dependent(tmp_path / "m.onnx")
    backend = opened(path, ModelCard(name="m", batching=BatchingCard(max_batch_size=0)))
    lane = backend.create_lane(0)
    assert backend.spec.buckets.dim_names == ("batch",)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    request = request_of(backend.spec, x, dims=(3,))
    (result,) = lane.sync(lane.enqueue(batch_of(backend.spec, request))).outputs
    np.testing.assert_allclose(result[0], x - x.mean(axis=0))
    lane.close()


def test_lane_of_a_vanished_model(tmp_path: Path) -> None:
    path = onnx_models.make_simple(tmp_path / "m.onnx")
    backend = opened(path, ModelCard(name="m"))
    path.unlink()
    with pytest.raises(ModelLoadFailed, match="cannot load the model"):
        backend.create_lane(0)


@pytest.mark.parametrize("dims", [("batch", 16), (2, 16)], ids=["batched", "not batched"])
def test_batch_dim_follows_the_model(tmp_path: Path, dims: tuple[str | int, ...]) -> None:
    make = partial(onnx_models.make_identity, dims=dims)
    assert opened(make(tmp_path / "m.onnx"), ModelCard(name="m")).spec.has_batch_dim == (dims[0] == "batch")

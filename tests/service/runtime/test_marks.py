"""Lanes that mark what they do, on the real backend of the CPU, and a package that only writes down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from service import backends
from service.backends import marked, open_backend, open_reference, pci_bus_id
from service.buckets import Bucket
from service.cards import BatchingCard, ModelCard
from service.errors import InvalidInput, ModelLoadFailed
from service.repository.layout import VersionFolder
from service.requests import Batch
from service.runtime.marks import DOMAIN
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.protocol import Backend
from service.runtime.trt.flavour import describe
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.onnx_batches import request_of
from tests.doubles.trt_models import DOUBLE


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every range's beginning, and `.` for its end."""
    words: list[str] = []

    def push(message: str, *, domain: str) -> None:
        assert domain == DOMAIN
        words.append(message)

    monkeypatch.setitem(
        sys.modules, "nvtx", SimpleNamespace(push_range=push, pop_range=lambda *, domain: words.append("."))
    )
    return words


@pytest.fixture
def plain(tmp_path: Path) -> OnnxBackend:
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=2))
    return OnnxBackend.open(
        card, version="1", model_path=onnx_models.make_bounded_lookup(tmp_path / "model.onnx"), cpu_threads=1
    )


def batch(backend: Backend, *indices: int) -> Batch:
    return Batch(Bucket(2), (request_of(backend.spec, np.array(indices, np.int64)),), len(indices))


def test_every_call_of_a_lane_is_a_range(said: list[str], plain: OnnxBackend) -> None:
    backend = marked(plain)
    lane = backend.create_lane(3)
    lane.warm_up(Bucket(2))
    (outputs,) = lane.sync(lane.enqueue(batch(backend, 1, 2))).outputs
    np.testing.assert_array_equal(outputs[0], [[2, 3], [4, 5]])
    name = "m lane 3"
    assert said == [f"{name}: warm-up 2", ".", f"{name}: enqueue 2", ".", f"{name}: sync 2", "."]
    assert lane.figures() == plain.create_lane(0).figures()
    lane.close()


def test_a_range_ends_whatever_happens(said: list[str], plain: OnnxBackend) -> None:
    backend = marked(plain)
    lane = backend.create_lane(0)
    lane.warm_up(Bucket(2))
    ticket = lane.enqueue(batch(backend, 1, 99))
    with pytest.raises(InvalidInput, match="values that the model cannot take"):
        lane.sync(ticket)
    assert said.count(".") == len(said) / 2


def test_everything_else_is_the_others(said: list[str], plain: OnnxBackend) -> None:
    backend = marked(plain)
    assert (backend.spec, backend.lane_count, backend.lane_depth) == (plain.spec, 1, 1)
    assert (backend.weights_bytes, backend.free_device_bytes(), backend.create_probe(Bucket(2))) == (0, None, None)
    assert backend.profiles(Bucket(2)) == plain.profiles(Bucket(2))
    assert backend.create_layer_probe(Bucket(2)).layers(1).layers
    with backend.register(np.zeros(4)):
        pass
    assert (open_reference(backend, cpu_threads=1), pci_bus_id(backend)) == (None, None)
    backend.close()
    assert said == []


def test_a_marked_plan_is_still_held_against_its_onnx_model(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeCuda()
    flavour = describe("tensorrt", fake_tensorrt(api, "10"))
    monkeypatch.setattr("service.runtime.trt.flavour.find_flavour", lambda: flavour)
    monkeypatch.setattr("service.runtime.cuda.device.runtime_api", lambda: api)
    backends._tensorrt.cache_clear()
    onnx, plan = onnx_models.make_scaled(tmp_path / "model.onnx", factor=2.0), tmp_path / "m.plan"
    plan.write_bytes(plan_of(DOUBLE, VERSIONS["10"]))
    backend = marked(open_backend(ModelCard(name="m"), VersionFolder("1", tmp_path, onnx, plan), cpu_threads=1))
    reference = open_reference(backend, cpu_threads=1)
    assert reference is not None
    np.testing.assert_array_equal(reference.run([np.ones((1, 8), np.float32)])[0], np.full((1, 8), 2.0))
    backend.close()
    backends._tensorrt.cache_clear()


def test_without_the_package_it_is_said(plain: OnnxBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ModelLoadFailed, match="INFERLANE_NVTX_ENABLED needs the package nvtx"):
        marked(plain)

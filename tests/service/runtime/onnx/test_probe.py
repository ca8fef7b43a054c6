"""Nodes timed on real models; their sum lies near the time of an execution, and nothing is left behind."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest

from service.errors import ExecutionFailed
from service.layers.figures import known_share
from service.layers.profile import profile_layers
from service.runtime.onnx import probe as module
from service.runtime.onnx.probe import WARM_RUNS, OnnxLayerProbe
from tests.doubles import onnx_models
from tests.service.runtime.onnx.conftest import OpenLane


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files lie in these tests."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def test_a_classifier(open_lane: OpenLane, folder: Path) -> None:
    backend, _ = open_lane(onnx_models.make_cnn)
    bucket = next(iter(backend.spec.buckets.known()))
    profile = profile_layers(backend, bucket, runs=3)
    kinds = [layer.kind for layer in profile.layers]
    assert kinds.count("Conv") == 2
    assert profile.span_s > 0
    assert known_share(profile) == 1.0
    by_hand = 2 * bucket.padded_size * 3 * 3 * 3 * 8
    convolution = next(layer for layer in profile.layers if layer.kind == "Conv")
    assert convolution.flops is not None
    assert convolution.flops % by_hand == 0
    assert convolution.dtype == "FP32"
    assert list(folder.iterdir()) == []


def test_strings_are_run_unbound(open_lane: OpenLane) -> None:
    backend, _ = open_lane(onnx_models.make_string)
    assert profile_layers(backend, next(iter(backend.spec.buckets.known())), runs=1).layers


def test_spans_are_medians_of_the_runs_that_count(open_lane: OpenLane) -> None:
    backend, _ = open_lane(onnx_models.make_identity)
    bucket = next(iter(backend.spec.buckets.known()))
    spans_ns = [10**9] * WARM_RUNS + [3000, 9000, 5000]
    stamps = itertools.chain.from_iterable((0, span, 0, 1) for span in spans_ns)
    model = backend._model_path
    probe = OnnxLayerProbe(model, backend.spec, bucket, threads=1, clock=lambda: next(stamps))
    trace = probe.layers(3)
    assert trace.span_s == pytest.approx(5e-6)
    assert (trace.runs, trace.is_replayed) == (3, False)
    probe.close()


def test_a_model_that_refuses_synthetic_values(open_lane: OpenLane, folder: Path) -> None:
    backend, _ = open_lane(onnx_models.make_reshape, max_batch_size=0, warm=False)
    bucket = next(iter(backend.spec.buckets.known()))
    with pytest.raises(ExecutionFailed, match=r"layers of model 'm' cannot be timed.*bucket 1"):
        profile_layers(backend, bucket, runs=1)
    assert list(folder.iterdir()) == []


def test_a_report_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ExecutionFailed, match="cannot be read"):
        module._events(tmp_path / "absent.json")

"""What a build promises, as tests that run on the fake TensorRT and, unchanged, on a real GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from engines.events import PhaseFinished, PhaseStarted, PhaseStep
from engines.report import AccuracyReport
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.trt.manifest import Machine, file_sha256, manifest_path, read_manifest
from service.runtime.warm_up import synthetic_batch
from service.tensors import HostArray
from tests.doubles.build_bench import BuildBench
from tests.doubles.onnx_models import make_cnn, make_sequence

SEQUENCE_CARD = "[buckets]\nbatch = [1, 4]\nsequence = [8, 128]\n"
CNN_CARD = "[batching]\nmax_batch_size = 16\n"
QUICK = {"optimization_level": 0}


def expected(path: Path, spec: ModelSpec, batch: Batch) -> list[HostArray]:
    """What ONNX Runtime gives for the batch, in the order of the spec's outputs."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wide = {argument.name: np.int64 for argument in session.get_inputs() if argument.type == "tensor(int64)"}
    joined = [np.concatenate(rows) for rows in zip(*(request.inputs for request in batch.requests), strict=True)]
    feeds = {
        tensor.name: np.asarray(value, wide.get(tensor.name, value.dtype))
        for tensor, value in zip(spec.inputs, joined, strict=True)
    }
    outputs: list[HostArray] = session.run([tensor.name for tensor in spec.outputs], feeds)
    return outputs


def assert_serves(bench: BuildBench, tolerance: float = 2e-3) -> None:
    """Every bucket of the built plan answers as ONNX Runtime does."""
    backend = bench.open()
    lane = backend.create_lane(0)
    try:
        for bucket in backend.spec.buckets.known():
            lane.warm_up(bucket)
            batch = synthetic_batch(backend.spec, bucket)
            (got,) = lane.sync(lane.enqueue(batch)).outputs
            for array, wanted in zip(got, expected(bench.onnx_path, backend.spec, batch), strict=True):
                np.testing.assert_allclose(array, wanted, rtol=tolerance, atol=tolerance)
    finally:
        lane.close()
        backend.close()


class BuildCases:
    """Needs a fixture `bench: BuildBench` whose model's folder is empty."""

    def test_a_plan_is_built_from_a_card_and_serves_every_bucket(self, bench: BuildBench) -> None:
        make_cnn(bench.onnx_path)
        bench.card(CNN_CARD)
        report = bench.build(**QUICK)
        assert report.plan_path == bench.plan_path
        assert report.plan_bytes == bench.plan_path.stat().st_size
        assert [profile["image"].max[0] for profile in report.profiles] == [1, 16]
        assert len(report.scratch_bytes) == len(report.profiles)
        assert bench.files() == {"model.onnx", "model.toml", "model.plan", "model.plan.json"}
        assert_serves(bench)

    def test_dimensions_keep_their_names_and_buckets(self, bench: BuildBench) -> None:
        make_sequence(bench.onnx_path)
        bench.card(SEQUENCE_CARD)
        report = bench.build(**QUICK)
        assert len(report.profiles) == 2
        backend = bench.open()
        assert backend.spec.buckets.dim_names == ("sequence",)
        assert [tensor.dims for tensor in backend.spec.outputs] == [("batch", "sequence", 8), ("batch", 8)]
        backend.close()
        assert_serves(bench)

    def test_a_dimension_with_one_bucket_is_a_dimension_still(self, bench: BuildBench) -> None:
        """TensorRT fixes what every profile pins: the names must come from elsewhere."""
        make_sequence(bench.onnx_path)
        bench.card("[buckets]\nbatch = [1]\nsequence = [16]\n")
        bench.build(**QUICK)
        backend = bench.open()
        assert backend.spec.has_batch_dim
        assert [bucket.label for bucket in backend.spec.buckets.known()] == ["1x16"]
        assert [tensor.dims for tensor in backend.spec.outputs] == [("batch", "sequence", 8), ("batch", 8)]
        backend.close()
        assert_serves(bench)

    def test_the_manifest_says_where_the_plan_comes_from(self, bench: BuildBench) -> None:
        make_cnn(bench.onnx_path)
        bench.card(CNN_CARD)
        report = bench.build(**QUICK)
        manifest = read_manifest(bench.plan_path)
        assert manifest is not None
        assert manifest.machine == Machine.here(bench.cuda, 0)
        assert manifest.dims["logits"] == ("batch", 10)
        manifest.check_content(bench.plan_path.read_bytes(), "model.plan")
        content = json.loads(manifest_path(bench.plan_path).read_text(encoding="utf-8"))
        assert content["onnx"]["sha256"] == file_sha256(bench.onnx_path)
        assert content["precision"]["mode"] == "as-is"
        assert content["options"]["optimization_level"] == 0
        assert content["profiles"][0]["image"]["min"] == [1, 3, 64, 64]
        assert content["scratch_bytes"] == list(report.scratch_bytes)
        assert content["built_on"]["tensorrt"] == f"{bench.flavour.name} {bench.flavour.version}"
        assert content["accuracy"] is None

    def test_fp16_is_reached_by_weak_typing_or_refused_with_the_command(self, bench: BuildBench) -> None:
        make_cnn(bench.onnx_path)
        bench.card(f'{CNN_CARD}[precision]\nmode = "fp16"\n')
        if not hasattr(bench.flavour.module.BuilderFlag, "FP16"):
            with pytest.raises(ModelLoadFailed, match=r"python -m modelopt\.onnx\.autocast"):
                bench.build(**QUICK)
            assert bench.files() == {"model.onnx", "model.toml"}
            return
        assert bench.build(**QUICK).precision == "fp16 (weakly typed)"
        assert_serves(bench, tolerance=2e-2)

    def test_phases_nest_and_end(self, bench: BuildBench) -> None:
        make_cnn(bench.onnx_path)
        bench.build(**QUICK)
        under_way: list[str] = []
        for event in bench.events:
            if isinstance(event, PhaseStarted):
                assert event.parent is None or event.parent in under_way
                under_way.append(event.phase)
            elif isinstance(event, PhaseStep):
                assert event.phase in under_way
            elif isinstance(event, PhaseFinished):
                under_way.remove(event.phase)
        assert under_way == []
        names = {event.phase for event in bench.events if isinstance(event, PhaseStarted)}
        assert {"parse", "build", "measure"} <= names
        has_monitor = hasattr(bench.flavour.module, "IProgressMonitor")
        assert any(isinstance(event, PhaseStep) for event in bench.events) == has_monitor

    def test_a_veto_leaves_what_was_there_before(self, bench: BuildBench) -> None:
        make_cnn(bench.onnx_path)
        bench.card(CNN_CARD)
        bench.build(**QUICK)
        before = bench.plan_path.read_bytes(), manifest_path(bench.plan_path).read_bytes()

        def veto(plan_path: Path) -> AccuracyReport:
            assert plan_path.name.startswith(".model.plan.")
            bench.open(plan_path).close()
            raise ModelLoadFailed("bucket 8 differs")

        with pytest.raises(ModelLoadFailed, match="bucket 8 differs"):
            bench.build(check=veto, **QUICK)
        assert (bench.plan_path.read_bytes(), manifest_path(bench.plan_path).read_bytes()) == before
        assert bench.files() == {"model.onnx", "model.toml", "model.plan", "model.plan.json"}

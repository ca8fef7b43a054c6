"""What makes recordings comparable, and what only is to be told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.bench.measure import Trial
from service.bench.origin import mismatch, origin_of
from service.bench.recording import Origin
from service.bench.run import find_model
from service.models import TENSORRT_PLATFORM
from tests.doubles import onnx_models
from tests.doubles.requests import make_spec
from tests.doubles.running_server import add_model

TRIAL = Trial(lane_counts=(2,), duration_s=1.0)

WAS = Origin(
    model="m/1",
    machine={"processor": "one", "cores": "4"},
    versions={"numpy": "2.0"},
    digests={"model.toml": "aa", "model.onnx": "bb"},
    load={"lanes": "1"},
)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    add_model(tmp_path, "m", onnx_models.make_identity, "[batching]\nmax_batch_size = 2\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("model name\t: Some Processor 9\n")
    spec = replace(make_spec(), name="m", version="1")
    return origin_of(find_model(tmp_path, "m"), spec, TRIAL, cpu_threads=3, root=tmp_path)


def test_an_origin_tells_machine_versions_and_files(origin: Origin) -> None:
    assert origin.model == "m/1"
    assert origin.machine["processor"] == "Some Processor 9"
    assert origin.machine["threads"] == "3"
    assert {"inferlane", "python", "numpy", "onnxruntime"} <= set(origin.versions)
    assert set(origin.digests) == {"model.toml", "model.onnx"}
    assert all(len(digest) == 64 for digest in origin.digests.values())
    assert origin.load["lanes"] == "2"


def test_a_gpu_takes_the_place_of_threads(tmp_path: Path) -> None:
    add_model(tmp_path, "m", onnx_models.make_identity)
    spec = replace(make_spec(), name="m", version="1", platform=TENSORRT_PLATFORM)
    machine = origin_of(find_model(tmp_path, "m"), spec, TRIAL, cpu_threads=3).machine
    assert "threads" not in machine
    assert machine["gpu"]


@pytest.mark.parametrize(
    ("now", "machine", "others"),
    [
        (WAS, (), ()),
        (replace(WAS, machine={"processor": "two", "cores": "4"}), ("processor was one, is two",), ()),
        (replace(WAS, machine={"processor": "one"}), ("cores was 4, is absent",), ()),
        (replace(WAS, load={"lanes": "2"}), ("lanes was 1, is 2",), ()),
        (replace(WAS, versions={"numpy": "2.1"}), (), ("numpy was 2.0, is 2.1",)),
        (replace(WAS, digests={"model.toml": "cc", "model.onnx": "bb"}), (), ("model.toml is another file",)),
        (replace(WAS, model="m/2"), (), ("model was m/1, is m/2",)),
    ],
)
def test_differences(now: Origin, machine: tuple[str, ...], others: tuple[str, ...]) -> None:
    found = mismatch(WAS, now)
    assert (found.machine, found.others) == (machine, others)

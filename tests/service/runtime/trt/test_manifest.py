"""The sidecar: read, held against the machine, and refused in words where it is broken."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.errors import ModelLoadFailed
from service.runtime.trt.manifest import Machine, Manifest, manifest_path, read_manifest

H200 = Machine("NVIDIA H200", (9, 0), (13, 0))
CONTENT: dict[str, Any] = {
    "format": 1,
    "plan": {"bytes": 1000, "sha256": "AB" * 32},
    "built_on": {"gpu": "NVIDIA H200", "compute_capability": "9.0", "cuda": "13.0", "driver": "580.1"},
    "dims": {"x": ["batch", "sequence"]},
    "flags": ["the builder's own"],
}
MANIFEST = Manifest(
    plan_bytes=1000,
    plan_sha256="ab" * 32,
    machine=H200,
    is_version_compatible=False,
    is_ampere_compatible=False,
    dims={"x": ("batch", "sequence")},
)


def write(folder: Path, content: Any) -> Path:
    plan = folder / "model.plan"
    manifest_path(plan).write_text(content if isinstance(content, str) else json.dumps(content))
    return plan


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, CONTENT)) == MANIFEST
    compatible = {**CONTENT, "version_compatible": True, "hardware_compatibility": "ampere+"}
    wanted = replace(MANIFEST, is_version_compatible=True, is_ampere_compatible=True)
    assert read_manifest(write(tmp_path, compatible)) == wanted
    same = {**CONTENT, "hardware_compatibility": "same-compute-capability"}
    assert read_manifest(write(tmp_path, same)) == MANIFEST
    assert (tmp_path / "model.plan.json").exists()


def test_the_model_that_a_plan_was_built_from(tmp_path: Path) -> None:
    onnx = tmp_path / "model.onnx"
    onnx.write_bytes(b"model")
    digest = hashlib.sha256(b"model").hexdigest()
    built = read_manifest(write(tmp_path, {**CONTENT, "onnx": {"bytes": 5, "sha256": digest.upper()}}))
    assert built is not None
    assert built.is_built_from(onnx) is True
    onnx.write_bytes(b"modem")
    assert built.is_built_from(onnx) is False
    onnx.write_bytes(b"models")
    assert built.is_built_from(onnx) is False
    assert MANIFEST.is_built_from(tmp_path / "absent") is None


def test_a_plan_without_one(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "model.plan") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no manifest of format 1"),
        ("[]", "is no manifest of format 1"),
        ({**CONTENT, "format": 2}, "its format is 2"),
        ({key: value for key, value in CONTENT.items() if key != "plan"}, "lacks 'plan'"),
        ({**CONTENT, "built_on": {"gpu": "x"}}, "lacks 'compute_capability'"),
        ({**CONTENT, "built_on": {**CONTENT["built_on"], "cuda": "thirteen"}}, "is no manifest"),
        ({**CONTENT, "dims": []}, "is no manifest"),
        ({**CONTENT, "plan": {"bytes": float("inf"), "sha256": ""}}, "is no manifest"),
        ("[" * 100_000, "is no manifest"),
    ],
)
def test_a_broken_one(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=f"model.plan.json {said}|model.plan.json .*{said}"):
        read_manifest(write(tmp_path, content))


def test_one_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "model.plan.json").mkdir()
    with pytest.raises(ModelLoadFailed, match=r"model\.plan\.json cannot be read"):
        read_manifest(tmp_path / "model.plan")


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (
            replace(H200, compute_capability=(8, 9)),
            "built for compute capability 9.0 .NVIDIA H200.*of 8.9; build it again",
        ),
        (replace(H200, compute_capability=(10, 0)), "of 10.0"),
        (replace(H200, cuda_version=(12, 9)), "built with CUDA 13.0, this server runs CUDA 12.9.*for CUDA 13"),
    ],
)
def test_another_machine(here: Machine, said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=said):
        MANIFEST.check_machine(here, "m.plan")


def test_a_plan_that_is_compatible_from_ampere_on_runs_on_older_and_newer_gpus_but_not_before_it() -> None:
    compatible = replace(MANIFEST, is_ampere_compatible=True)
    for capability in ((8, 0), (8, 9), (12, 0)):
        compatible.check_machine(replace(H200, compute_capability=capability), "m.plan")
    with pytest.raises(ModelLoadFailed, match=r"of 7\.5"):
        compatible.check_machine(replace(H200, compute_capability=(7, 5)), "m.plan")


def test_another_gpu_of_the_same_kind_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        MANIFEST.check_machine(H200, "m.plan")
        assert caplog.text == ""
        MANIFEST.check_machine(replace(H200, gpu_name="NVIDIA H100", cuda_version=(13, 2)), "m.plan")
    assert "built on NVIDIA H200 and runs on NVIDIA H100" in caplog.text

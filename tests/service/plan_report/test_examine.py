"""What is found out of a plan, with a GPU and without; each thing that speaks against it is told once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from service.cards import ShapeRange
from service.errors import DeviceError, ModelLoadFailed
from service.plan_report.examine import Tools, examine
from service.plan_report.facts import PlanFacts
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.trt.flavour import describe
from service.runtime.trt.manifest import manifest_path
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import FakeModel, plan_of
from tests.doubles.fake_tensorrt_world import GENERATIONS, VERSIONS
from tests.doubles.trt_models import DOUBLE, RESHAPE, SEQUENCE, WIDTH

BUILT_ON = {"gpu": "Fake GPU", "compute_capability": "9.0", "cuda": "13.0"}
NO_TENSORRT = "TensorRT cannot be used: none is installed"
NO_GPU = "CUDA cannot be used: no NVIDIA driver answers"


def write_plan(
    folder: Path, model: FakeModel = DOUBLE, *, generation: str = "10", manifest: dict[str, Any] | None = None
) -> Path:
    """A plan, and a manifest if one is given; its digest is right unless it says otherwise."""
    path = folder / "m.plan"
    path.write_bytes(plan_of(model, VERSIONS[generation]))
    if manifest is not None:
        content = path.read_bytes()
        described = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        text = json.dumps({"format": 1, "plan": described, "built_on": BUILT_ON, **manifest})
        manifest_path(path).write_text(text, encoding="utf-8")
    return path


def failing(message: str) -> Callable[[], Any]:
    def fail() -> Any:
        raise ModelLoadFailed(message)

    return fail


@dataclass
class Machine:
    """A fake GPU with a fake TensorRT."""

    api: FakeCuda
    module: Any
    tools: Tools


def machine(generation: str = "10") -> Machine:
    api = FakeCuda()
    module = fake_tensorrt(api, generation)
    flavour = describe("tensorrt", module)
    return Machine(api, module, Tools(find_flavour=lambda: flavour, load_cuda=lambda: Cuda(api)))  # type: ignore[arg-type]


LAPTOP = Tools(find_flavour=failing(NO_TENSORRT), load_cuda=failing(NO_GPU))


def results(facts: PlanFacts) -> dict[str, bool | None]:
    return {check.subject: check.is_passed for check in facts.checks}


def last_words(facts: PlanFacts) -> str:
    return facts.checks[-1].words


def test_without_gpu_and_tensorrt_header_and_manifest_are_told(tmp_path: Path) -> None:
    path = write_plan(tmp_path, manifest={"precision": "fp16"})
    facts = examine(path, LAPTOP)
    content = path.read_bytes()
    assert (facts.path, facts.plan_bytes, facts.product, facts.version) == (
        str(path),
        len(content),
        "TensorRT",
        "10.13.3.9",
    )
    assert facts.sha256 == hashlib.sha256(content).hexdigest()
    assert facts.manifest is not None
    assert facts.manifest["precision"] == "fp16"
    assert results(facts) == {"manifest": True, "TensorRT": None, "GPU": None, "engine": None}
    assert [check.words for check in facts.checks[1:3]] == [NO_TENSORRT, NO_GPU]
    assert facts.is_runnable is None
    assert facts.engine is None


@pytest.mark.parametrize("generation", GENERATIONS)
def test_with_a_gpu_the_engine_is_told(tmp_path: Path, generation: str) -> None:
    dims = {"x": ["batch", "sequence"], "y": ["batch", "sequence"]}
    told = {"dims": dims, "version_compatible": generation == "11-lean"}
    path = write_plan(tmp_path, SEQUENCE, generation=generation, manifest=told)
    box = machine(generation)
    facts = examine(path, box.tools)
    assert results(facts) == {"manifest": True, "TensorRT": True, "GPU": True, "engine": True}
    assert facts.is_runnable is True
    engine = facts.engine
    assert engine is not None
    assert [tensor.dims for tensor in (*engine.inputs, *engine.outputs)] == [("batch", "sequence")] * 2
    assert engine.profiles[1] == {"x": ShapeRange((1, 8), (2, 16), (4, 16))}
    assert len(engine.scratch_bytes) == 2
    if generation == "11-lean":
        assert engine.layers is None
    else:
        assert engine.layers is not None
        assert [(layer.kind, layer.inputs) for layer in engine.layers] == [
            ("PointWise", ("4x4",)),
            ("PointWise", ("2x16",)),
        ]
    assert box.module.world.deaths[-3:] == ["engine", "runtime", "logger"]
    assert Cuda(box.api).live == LiveCounts()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("built_on", "said"),
    [("Fake GPU", "Fake GPU is what it was built for"), ("NVIDIA H100", "runs it; it was built, .* on NVIDIA H100")],
)
def test_which_gpu_it_was_built_for(tmp_path: Path, built_on: str, said: str) -> None:
    path = write_plan(tmp_path, manifest={"built_on": {**BUILT_ON, "gpu": built_on}})
    (gpu,) = (check for check in examine(path, machine().tools).checks if check.subject == "GPU")
    assert gpu.is_passed is True
    assert re.search(said, gpu.words)


def test_inputs_that_the_profiles_fix_are_told_with_their_values(tmp_path: Path) -> None:
    engine = examine(write_plan(tmp_path, RESHAPE), machine().tools).engine
    assert engine is not None
    assert [tensor.name for tensor in engine.inputs] == ["x"]
    assert engine.fixed_inputs == {"shape": (WIDTH, 4)}


def test_without_a_manifest_nothing_is_certain_but_the_engine_loads(tmp_path: Path) -> None:
    facts = examine(write_plan(tmp_path), machine().tools)
    assert results(facts) == {"manifest": None, "TensorRT": True, "GPU": True, "engine": True}
    assert facts.manifest is None
    assert facts.is_runnable is None
    assert "m.plan.json" in facts.checks[0].words


@pytest.mark.parametrize(
    ("manifest", "generation", "subject", "said"),
    [
        ({"plan": {"bytes": 10**6, "sha256": ""}}, "10", "manifest", "is cut off"),
        ({"plan": {"bytes": 1, "sha256": ""}}, "10", "manifest", "not the plan that its manifest describes"),
        ({"format": 2}, "10", "manifest", "no manifest of format 1"),
        ({}, "11", "TensorRT", "built by TensorRT 10.13.3.9, this server runs tensorrt 11.4.0.106"),
        ({}, "8.6", "TensorRT", "plans never run on an older one"),
        ({"built_on": {**BUILT_ON, "compute_capability": "8.0"}}, "10", "GPU", "built for compute capability 8.0"),
        ({"built_on": {**BUILT_ON, "cuda": "12.8"}}, "10", "GPU", "built with CUDA 12.8"),
    ],
)
def test_what_speaks_against_it_ends_the_checks(
    tmp_path: Path, manifest: dict[str, Any], generation: str, subject: str, said: str
) -> None:
    facts = examine(write_plan(tmp_path, manifest=manifest), machine(generation).tools)
    assert facts.checks[-1].subject == subject
    assert facts.checks[-1].is_passed is False
    assert said in last_words(facts)
    assert facts.is_runnable is False
    assert facts.engine is None
    assert facts.manifest is not None


def test_a_version_compatible_plan_runs_on_a_newer_tensorrt(tmp_path: Path) -> None:
    path = write_plan(tmp_path, manifest={"version_compatible": True})
    assert examine(path, machine("11").tools).is_runnable is True


def test_an_engine_that_does_not_load(tmp_path: Path) -> None:
    box = machine()
    box.module.world.faults.engine = "a plugin is missing"
    facts = examine(write_plan(tmp_path), box.tools)
    assert facts.is_runnable is False
    assert "a plugin is missing" in last_words(facts)


def test_a_gpu_that_fails_while_it_is_asked(tmp_path: Path) -> None:
    box = machine()
    box.api.inject("cudaStreamCreateWithPriority", E.cudaErrorMemoryAllocation)
    facts = examine(write_plan(tmp_path), box.tools)
    assert results(facts)["engine"] is False
    assert "cudaErrorMemoryAllocation" in last_words(facts)
    assert facts.engine is None
    assert box.module.world.deaths == ["engine", "runtime", "logger"]


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    box = machine()
    facts = examine(write_plan(tmp_path), replace(box.tools, device=7))
    assert results(facts)["GPU"] is None
    assert "cudaSetDevice(7)" in facts.checks[2].words


def test_a_failed_driver_is_told(tmp_path: Path) -> None:
    def load() -> Cuda:
        raise DeviceError("cudaErrorUnknown: unknown error, in cudaGetDeviceCount")

    facts = examine(write_plan(tmp_path), replace(machine().tools, load_cuda=load))
    assert results(facts) == {"manifest": None, "TensorRT": True, "GPU": None, "engine": None}
    assert "cudaErrorUnknown" in facts.checks[2].words


def test_a_plan_is_digested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_plan(tmp_path, manifest={})
    monkeypatch.setattr("service.plan_report.examine.hashlib", None)
    assert examine(path, LAPTOP).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_manifest_that_is_no_json_object_is_not_shown(tmp_path: Path) -> None:
    path = write_plan(tmp_path)
    manifest_path(path).write_text("[1]", encoding="utf-8")
    facts = examine(path, LAPTOP)
    assert facts.manifest is None
    assert facts.is_runnable is False


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x08\x08\x12\x07pytorch" + bytes(40), "looks like an ONNX model"),
        (b"hello", "is not a TensorRT plan"),
        (b"", "is empty"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "m.plan"
    path.write_bytes(content)
    with pytest.raises(ModelLoadFailed, match=said):
        examine(path, LAPTOP)

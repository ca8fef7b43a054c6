"""The doctor: facts of a machine, what they are enough for, and how that is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from service.doctor.examine import examine, imported, installed
from service.doctor.facts import Facts, Gpu, Nvidia, Package
from service.doctor.report import render, to_json
from service.doctor.verdicts import (
    BUILD_ENGINES,
    GPU_FIX,
    LOAD_TEST,
    MAKE_DEMO,
    RUN_KERNELS,
    SERVE_ON_CPU,
    SERVE_ON_GPU,
    WATCH_GPU,
    Verdict,
    can_serve,
    verdicts,
)

CPU_BOX = Facts(
    python=(3, 11, 7),
    executable="/venv/bin/python",
    system="Linux 6.1, glibc 2.36, x86_64",
    cpu_model="Model [i9]",
    machine_cores=8,
    usable_cores=1.5,
    memory_bytes=8 << 30,
    onnxruntime=Package("onnxruntime", "1.23.0", details=("CPUExecutionProvider",)),
    opencv=Package("cv2", "4.12.0", details=("opencv-python-headless 4.12.0.88",)),
    nvidia=Nvidia(note="no NVIDIA driver is loaded"),
    others=(Package("pip", "25.0"),),
)
GPU_BOX = replace(
    CPU_BOX,
    nvidia=Nvidia("580.65", (Gpu("H200", 141 << 30, "9.0"),)),
    tensorrt=(Package("tensorrt", "10.13.0"), Package("tensorrt_rtx")),
    others=tuple(
        Package(name, "1.0") for name in ("cuda.core", "cuda.bindings", "nvrtc", "pynvml", "onnx", "pip", "locust")
    ),
)


def verdict(facts: Facts, purpose: str) -> Verdict:
    return next(found for found in verdicts(facts) if found.purpose == purpose)


def test_a_machine_with_everything_can_do_everything() -> None:
    assert {found.purpose: found.is_possible for found in verdicts(GPU_BOX)} == dict.fromkeys(
        (SERVE_ON_CPU, SERVE_ON_GPU, RUN_KERNELS, BUILD_ENGINES, WATCH_GPU, MAKE_DEMO, LOAD_TEST), True
    )
    assert all(not (found.missing or found.warnings or found.fixes) for found in verdicts(GPU_BOX))


def test_a_laptop_serves_on_the_cpu_and_says_what_the_rest_needs() -> None:
    assert [found.purpose for found in verdicts(CPU_BOX) if found.is_possible] == [SERVE_ON_CPU, MAKE_DEMO]
    gpu = verdict(CPU_BOX, SERVE_ON_GPU)
    assert gpu.missing[0] == "an NVIDIA driver (no NVIDIA driver is loaded)"
    assert gpu.missing[1:] == ("cuda-core", "cuda-bindings", "any flavour of TensorRT")
    assert gpu.fixes == (GPU_FIX, "pip install -e '.[gpu,tensorrt-cu13]'")
    assert verdict(CPU_BOX, LOAD_TEST).missing == ("locust",)


@pytest.mark.parametrize(
    ("facts", "missing", "fix"),
    [
        (replace(CPU_BOX, python=(3, 9, 18)), "CPython 3.10 to 3.13 (this is 3.9.18)", "python3.13 -m venv .venv"),
        (replace(CPU_BOX, python=(3, 14, 0)), "this is 3.14.0", "python3.13 -m venv .venv"),
        (replace(CPU_BOX, onnxruntime=Package("onnxruntime")), "ONNX Runtime", "pip install -e '.[cpu]'"),
        (
            replace(CPU_BOX, onnxruntime=Package("onnxruntime", "1.23.0", "libfoo.so: not found")),
            "ONNX Runtime (libfoo.so: not found)",
            "pip install -e '.[cpu]'",
        ),
        (
            replace(CPU_BOX, onnxruntime=Package("onnxruntime", "1.23.0", details=("X",))),
            "ONNX Runtime's CPU provider (it has X)",
            "pip install --force-reinstall onnxruntime",
        ),
        (
            replace(CPU_BOX, opencv=Package("cv2", "4.12.0", "libGL.so.1: cannot open")),
            "OpenCV (libGL.so.1: cannot open)",
            "pip install --force-reinstall opencv-python-headless",
        ),
    ],
)
def test_what_keeps_the_cpu_server_from_running(facts: Facts, missing: str, fix: str) -> None:
    found = verdict(facts, SERVE_ON_CPU)
    assert not found.is_possible
    assert any(missing in line for line in found.missing)
    assert fix in found.fixes
    assert not can_serve(verdicts(facts))


def test_two_opencvs_are_a_warning_with_a_remedy() -> None:
    claims = ("opencv-python-headless 4.12.0.88", "opencv-python 4.11.0.86")
    facts = replace(CPU_BOX, opencv=Package("cv2", "4.12.0", details=claims))
    found = verdict(facts, SERVE_ON_CPU)
    assert found.is_possible
    assert "opencv-python-headless 4.12.0.88, opencv-python 4.11.0.86" in found.warnings[0]
    assert found.fixes[0].startswith("pip uninstall -y opencv-python && ")
    assert not verdict(CPU_BOX, SERVE_ON_CPU).warnings


@pytest.mark.parametrize(
    ("flavours", "serves", "builds"),
    [
        (("tensorrt",), True, True),
        (("tensorrt_lean",), True, False),
        (("tensorrt_dispatch",), True, False),
        (("tensorrt_rtx",), True, True),
        ((), False, False),
    ],
)
def test_each_flavour_of_tensorrt_is_good_for_something(flavours: tuple[str, ...], serves: bool, builds: bool) -> None:
    facts = replace(GPU_BOX, tensorrt=tuple(Package(name, "10.13.0") for name in flavours))
    assert verdict(facts, SERVE_ON_GPU).is_possible is serves
    assert verdict(facts, BUILD_ENGINES).is_possible is builds


def test_kernels_need_their_compiler() -> None:
    found = verdict(replace(GPU_BOX, others=tuple(p for p in GPU_BOX.others if p.name != "nvrtc")), RUN_KERNELS)
    assert (found.is_possible, found.missing) == (False, ("NVRTC",))
    assert found.fixes == ("pip install -e '.[kernels]'",)


def test_the_compiler_of_a_toolkit_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("service.doctor.examine.NVRTC_DISTRIBUTIONS", ())
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert not examine().has("nvrtc")
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libnvrtc.so.13").touch()
    assert examine().has("nvrtc")


def test_building_needs_all_that_a_build_uses() -> None:
    found = verdict(CPU_BOX, BUILD_ENGINES)
    assert found.missing[1:] == ("cuda-core", "cuda-bindings", "the full TensorRT", "onnx")
    assert found.fixes == (GPU_FIX, "pip install -e '.[build,gpu,tensorrt-cu13]'")


def test_without_onnx_runtime_accuracy_is_not_checked() -> None:
    found = verdict(replace(GPU_BOX, onnxruntime=Package("onnxruntime")), BUILD_ENGINES)
    assert found.is_possible
    assert found.warnings == ("without ONNX Runtime no plan's accuracy is checked",)
    assert found.fixes == ("pip install -e '.[build,gpu,tensorrt-cu13]'",)


@pytest.mark.parametrize(
    ("driver", "extra"), [("535.104", "cu12"), ("579.9", "cu12"), ("580.65", "cu13"), (None, "cu13")]
)
def test_the_driver_decides_which_cuda_is_advised(driver: str | None, extra: str) -> None:
    facts = replace(CPU_BOX, nvidia=Nvidia(driver))
    assert f"pip install -e '.[gpu,tensorrt-{extra}]'" in verdict(facts, SERVE_ON_GPU).fixes


def test_a_driver_without_a_gpu_is_not_enough() -> None:
    found = verdict(replace(GPU_BOX, nvidia=Nvidia("580.65")), WATCH_GPU)
    assert found.missing == ("a GPU that the driver lists (it lists none)",)
    assert found.fixes == (GPU_FIX,)


def test_this_machine_is_examined_as_it_is() -> None:
    facts = examine()
    assert facts.python == sys.version_info[:3]
    assert facts.executable == sys.executable
    assert "CPUExecutionProvider" in facts.onnxruntime.details
    assert any(claim.startswith("opencv-python-headless ") for claim in facts.opencv.details)
    assert [package.name for package in facts.tensorrt] == [
        "tensorrt",
        "tensorrt_lean",
        "tensorrt_dispatch",
        "tensorrt_rtx",
    ]
    assert facts.has("pip")
    assert {"tokenizers", "plotly", "fastapi_offline"} <= {package.name for package in facts.others}
    assert 0 < facts.usable_cores <= facts.machine_cores
    assert can_serve(verdicts(facts))


def test_the_driver_is_read_from_proc_where_nvml_cannot_be_asked(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(text, encoding="utf-8")
    nvidia = examine(tmp_path).nvidia
    if nvidia.gpus:
        pytest.skip("a GPU answers here, so the driver itself was asked")
    assert nvidia.driver == "535.104.05"
    assert nvidia.note


class NVMLError(Exception):
    """As nvidia-ml-py names it."""


def stand_in_nvml(failing: str = "") -> ModuleType:
    """A stand-in for nvidia-ml-py on a machine of one GPU, whose function `failing` fails."""
    answers: dict[str, Any] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.65.06",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 << 30),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
    }
    module = ModuleType("pynvml")
    module.calls = []  # type: ignore[attr-defined]
    module.NVMLError = NVMLError  # type: ignore[attr-defined]

    def make(name: str, answer: Any) -> Callable[..., Any]:
        def function(*_: Any) -> Any:
            module.calls.append(name)
            if name == failing:
                raise NVMLError("Driver Not Loaded")
            return answer

        return function

    for name, answer in answers.items():
        setattr(module, name, make(name, answer))
    return module


def test_gpus_are_listed_by_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = stand_in_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert examine().nvidia == Nvidia("580.65.06", (Gpu("NVIDIA H200", 141 << 30, "9.0"),))
    assert nvml.calls[-1] == "nvmlShutdown"


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlDeviceGetName"])
def test_an_nvml_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str) -> None:
    nvml = stand_in_nvml(failing)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert examine(tmp_path).nvidia == Nvidia(note="NVML: Driver Not Loaded")
    assert ("nvmlShutdown" in nvml.calls) == (failing != "nvmlInit")


@pytest.mark.gpu
def test_the_real_gpus_are_listed() -> None:
    pytest.importorskip("pynvml")
    nvidia = examine().nvidia
    assert nvidia.note is None
    assert nvidia.driver
    assert nvidia.gpus
    assert all(gpu.name and gpu.memory_bytes > 1 << 30 and gpu.compute_capability >= "5.0" for gpu in nvidia.gpus)


def test_a_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doctor_sample.py").write_text("raise RuntimeError('torn build')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed("doctor_sample", ("doctor-sample",)) == Package("doctor_sample", "unknown")
    assert installed("doctor_absent.part", ("doctor-absent",)) == Package("doctor_absent.part")
    assert installed("pytest", ("no-such", "pytest")).version == pytest.__version__


def test_a_package_that_does_not_import_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doctor_torn.py").write_text("raise RuntimeError('torn build')\n", encoding="utf-8")
    (tmp_path / "doctor_needy.py").write_text("import doctor_absent\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert imported("doctor_torn", ()) == Package("doctor_torn", "unknown", "torn build")
    assert imported("doctor_needy", ()) == Package("doctor_needy", "unknown", "No module named 'doctor_absent'")
    assert imported("doctor_absent", ()) == Package("doctor_absent")


def shown(facts: Facts) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render(facts, verdicts(facts)))
    return capture.get()


def test_the_report_shows_facts_verdicts_and_commands_literally() -> None:
    text = shown(replace(CPU_BOX, onnxruntime=Package("onnxruntime")))
    for words in (
        "3.11.7  /venv/bin/python",
        "Model [i9]: 1.5 of 8 logical cores usable",
        "8.0 GiB",
        "none (no NVIDIA driver is loaded)",
        "not installed",
        "pip install -e '.[cpu]'",
        "missing: ONNX Runtime",
    ):
        assert words in text
    assert "H200, 141 GiB, SM 9.0" in shown(GPU_BOX)


def test_the_json_holds_facts_and_verdicts() -> None:
    report = json.loads(to_json(CPU_BOX, verdicts(CPU_BOX)))
    assert report["ok"] is True
    assert report["facts"]["python"] == [3, 11, 7]
    assert report["facts"]["opencv"]["details"] == ["opencv-python-headless 4.12.0.88"]
    assert report["verdicts"][0] == {
        "purpose": SERVE_ON_CPU,
        "is_possible": True,
        "missing": [],
        "warnings": [],
        "fixes": [],
    }
    broken = replace(CPU_BOX, opencv=Package("cv2"))
    assert json.loads(to_json(broken, verdicts(broken)))["ok"] is False

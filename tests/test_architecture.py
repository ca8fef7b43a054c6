"""The rules that no linter of ours checks: what imports without what, and how long a module may be, tests included."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "engines", "loadtest", "kernels", "video")
SOURCES = tuple(sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")))
TESTS = tuple(sorted((ROOT / "tests").rglob("*.py")))
MAX_MODULE_LINES = 400
TALKATIVE = ("service/cli.py",)

DEVICES = ("cuda", "onnxruntime", "pynvml", "tensorrt", "tensorrt_dispatch", "tensorrt_lean", "tensorrt_rtx")
WEB = ("fastapi", "pydantic", "pydantic_core", "pydantic_settings", "starlette", "uvicorn")
DOMAIN = ("bfloat16", "buckets", "cards", "errors", "models", "requests", "tensors", "units")

IMPORT_WITHOUT = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is blocked by this test")

blocked, modules = sys.argv[1].split(","), sys.argv[2].split(",")
sys.meta_path.insert(0, Blocker())
for module in modules:
    importlib.import_module(module)
"""

DEVICE_TASKS = tuple(f"service.runtime.trt.media.{name}" for name in ("classify", "detect", "embed", "images", "tasks"))
"""Of the runtime, what fits kernels to a model: it asks the pipeline's tasks what they make of the model."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules_in(folder: str) -> tuple[str, ...]:
    paths = [path for path in SOURCES if relative(path).startswith(f"{folder}/")]
    return tuple(relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths)


def import_without(blocked: tuple[str, ...], modules: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Imports `modules` in an interpreter of its own, where importing `blocked` fails."""
    command = [sys.executable, "-c", IMPORT_WITHOUT, ",".join(blocked), ",".join(modules)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("modules", "blocked"),
    [
        pytest.param(
            ("service", *(f"service.{name}" for name in DOMAIN), "service.runtime.protocol"),
            (*DEVICES, *WEB, "cv2", "prometheus_client"),
            id="domain",
        ),
        pytest.param(modules_in("service/batching"), (*DEVICES, *WEB, "cv2"), id="batching"),
        pytest.param(modules_in("service/pipeline"), (*DEVICES, *WEB), id="pipeline"),
        pytest.param(
            tuple(name for name in modules_in("service/runtime") if name not in DEVICE_TASKS),
            (*DEVICES, *WEB, "cv2"),
            id="runtime",
        ),
        pytest.param(DEVICE_TASKS, (*DEVICES, *WEB), id="device tasks"),
        pytest.param(modules_in("service/diagnosis"), (*DEVICES, *WEB, "cv2", "prometheus_client"), id="diagnosis"),
        pytest.param(modules_in("service/layers"), (*DEVICES, *WEB, "cv2"), id="layers"),
        pytest.param(modules_in("service/telemetry"), (*DEVICES, *WEB, "cv2"), id="telemetry"),
        pytest.param(modules_in("service/api"), DEVICES, id="api"),
        pytest.param(modules_in("service/runtime/cuda"), (*DEVICES, *WEB, "cv2"), id="cuda"),
        pytest.param(modules_in("service/plan_report"), (*DEVICES, *WEB, "cv2"), id="plan_report"),
        pytest.param(modules_in("engines"), (*DEVICES, "fastapi", "onnx", "starlette", "uvicorn"), id="engines"),
        pytest.param(modules_in("kernels"), (*DEVICES, *WEB, "torch"), id="kernels"),
        pytest.param(modules_in("service/repository"), (*DEVICES, "fastapi", "starlette", "uvicorn"), id="repository"),
    ],
)
def test_imports_without(modules: tuple[str, ...], blocked: tuple[str, ...]) -> None:
    result = import_without(blocked, modules)
    assert result.returncode == 0, result.stderr


def test_blocked_import_fails() -> None:
    result = import_without(("pydantic_settings",), ("service.settings",))
    assert result.returncode != 0
    assert "pydantic_settings is blocked by this test" in result.stderr


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_module_size(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_MODULE_LINES, f"{relative(path)} has {lines} lines, at most {MAX_MODULE_LINES}: split it"


@pytest.mark.parametrize("path", [path for path in SOURCES if relative(path) not in TALKATIVE], ids=relative)
def test_no_print(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    lines = [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert not lines, f"{relative(path)} prints in lines {lines}: only {', '.join(TALKATIVE)} talks to the terminal"

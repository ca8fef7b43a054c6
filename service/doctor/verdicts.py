"""Facts → what this machine can do, what is missing for the rest, and what mends it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from service.doctor.facts import Facts

MIN_PYTHON = (3, 10)
MAX_PYTHON = (3, 13)
FIRST_CUDA_13_DRIVER = 580
"""Major version of the first driver that runs CUDA 13; older ones need packages for CUDA 12."""

GPU_FIX = "use a machine (or a container) that has an NVIDIA GPU and its driver"

SERVE_ON_CPU = "serve ONNX models on the CPU"
SERVE_ON_GPU = "serve TensorRT plans"
RUN_KERNELS = "prepare images and texts on the GPU"
BUILD_ENGINES = "build TensorRT plans"
WATCH_GPU = "watch the GPU"
MAKE_DEMO = "make the demo repository"
LOAD_TEST = "load-test a server with locust"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether this machine can do something.

    Attributes:
        purpose: what it is about.
        is_possible: whether it can.
        missing: what stands in the way; empty if it can.
        warnings: what is doubtful although it can.
        fixes: commands or steps that mend what is missing or doubtful.
    """

    purpose: str
    is_possible: bool
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()


def verdicts(facts: Facts) -> tuple[Verdict, ...]:
    """What the machine can do, the server on the CPU first."""
    packages = f"gpu,tensorrt-{_cuda_extra(facts)}"
    bindings = _absent(facts, {"cuda.core": "cuda-core", "cuda.bindings": "cuda-bindings"})
    flavour = () if any(package.is_usable for package in facts.tensorrt) else ("any flavour of TensorRT",)
    return (
        _serve_on_cpu(facts),
        _on_gpu(facts, SERVE_ON_GPU, (*bindings, *flavour), f"pip install -e '.[{packages}]'"),
        _on_gpu(facts, RUN_KERNELS, (*bindings, *_absent(facts, {"nvrtc": "NVRTC"})), "pip install -e '.[kernels]'"),
        _build_engines(facts, bindings, f"pip install -e '.[build,{packages}]'"),
        _on_gpu(facts, WATCH_GPU, _absent(facts, {"pynvml": "nvidia-ml-py"}), "pip install -e '.[gpu]'"),
        _verdict(
            MAKE_DEMO,
            _absent(facts, {"pip": "pip", "onnxruntime": "ONNX Runtime"}),
            "pip install -e '.[demo]'",
        ),
        _verdict(
            LOAD_TEST,
            _absent(facts, {"locust": "locust"}),
            "pip install -e '.[loadtest]'",
        ),
    )


def can_serve(found: Iterable[Verdict]) -> bool:
    """Whether the server on the CPU, the least that must work, can run."""
    return any(verdict.purpose == SERVE_ON_CPU and verdict.is_possible for verdict in found)


def _verdict(purpose: str, missing: tuple[str, ...], fix: str) -> Verdict:
    return Verdict(purpose, not missing, missing, fixes=(fix,) if missing else ())


def _absent(facts: Facts, names: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for module, name in names.items() if not facts.has(module))


def _on_gpu(facts: Facts, purpose: str, packages: tuple[str, ...], fix: str) -> Verdict:
    """A verdict on something that needs a GPU as well as packages."""
    gpu = _gpu_missing(facts)
    fixes = ((GPU_FIX,) if gpu else ()) + ((fix,) if packages else ())
    return Verdict(purpose, not fixes, (*gpu, *packages), fixes=fixes)


def _build_engines(facts: Facts, bindings: tuple[str, ...], fix: str) -> Verdict:
    # The lean and the dispatch runtime have no builder.
    builder = () if facts.has("tensorrt") or facts.has("tensorrt_rtx") else ("the full TensorRT",)
    found = _on_gpu(facts, BUILD_ENGINES, (*bindings, *builder, *_absent(facts, {"onnx": "onnx"})), fix)
    if found.is_possible and not facts.onnxruntime.is_usable:
        return replace(found, warnings=("without ONNX Runtime no plan's accuracy is checked",), fixes=(fix,))
    return found


def _gpu_missing(facts: Facts) -> tuple[str, ...]:
    if facts.nvidia.driver is None:
        return (f"an NVIDIA driver ({facts.nvidia.note or 'none found'})",)
    if not facts.nvidia.gpus and facts.has("pynvml"):
        return (f"a GPU that the driver lists ({facts.nvidia.note or 'it lists none'})",)
    return ()


def _cuda_extra(facts: Facts) -> str:
    major = (facts.nvidia.driver or "").partition(".")[0]
    return "cu12" if major.isdigit() and int(major) < FIRST_CUDA_13_DRIVER else "cu13"


def _serve_on_cpu(facts: Facts) -> Verdict:
    missing: list[str] = []
    warnings: list[str] = []
    fixes: list[str] = []
    if not MIN_PYTHON <= facts.python[:2] <= MAX_PYTHON:
        missing.append(f"CPython 3.{MIN_PYTHON[1]} to 3.{MAX_PYTHON[1]} (this is {'.'.join(map(str, facts.python))})")
        fixes.append(f"python3.{MAX_PYTHON[1]} -m venv .venv")
    runtime = facts.onnxruntime
    if not runtime.is_usable:
        missing.append(f"ONNX Runtime ({runtime.error})" if runtime.error else "ONNX Runtime")
        fixes.append("pip install -e '.[cpu]'")
    elif "CPUExecutionProvider" not in runtime.details:
        missing.append(f"ONNX Runtime's CPU provider (it has {', '.join(runtime.details) or 'none'})")
        fixes.append("pip install --force-reinstall onnxruntime")
    if not facts.opencv.is_usable:
        missing.append(f"OpenCV ({facts.opencv.error})" if facts.opencv.error else "OpenCV")
        fixes.append("pip install --force-reinstall opencv-python-headless")
    others = [claim for claim in facts.opencv.details if not claim.startswith("opencv-python-headless ")]
    if others and len(facts.opencv.details) > 1:
        # They overwrite each other's files, so which build is imported is down to the order of installation.
        warnings.append(f"several OpenCV packages share the folder cv2: {', '.join(facts.opencv.details)}")
        names = " ".join(claim.partition(" ")[0] for claim in others)
        fixes.append(f"pip uninstall -y {names} && pip install --force-reinstall --no-deps opencv-python-headless")
    return Verdict(SERVE_ON_CPU, not missing, tuple(missing), tuple(warnings), tuple(fixes))

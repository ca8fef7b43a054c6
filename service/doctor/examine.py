"""Gathers the doctor's facts. Nothing here fails for want of a package: what cannot be imported becomes a fact."""

from __future__ import annotations

import ctypes.util
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from service.doctor.facts import Facts, Gpu, Nvidia, Package
from service.machine import ROOT, memory_bytes, read_or_empty, usable_cores

TENSORRT_FLAVOURS = ("tensorrt", "tensorrt_lean", "tensorrt_dispatch", "tensorrt_rtx")
OPENCV_DISTRIBUTIONS = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)
ONNXRUNTIME_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
NVRTC_DISTRIBUTIONS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_OTHER_DISTRIBUTIONS = {
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
    "pynvml": "nvidia-ml-py",
    "onnx": "onnx",
    "pip": "pip",
    "locust": "locust",
    "tokenizers": "tokenizers",
    "plotly": "plotly",
    "fastapi_offline": "fastapi-offline",
}


def examine(root: Path = ROOT) -> Facts:
    """The facts of this process and machine; imports OpenCV and ONNX Runtime, nothing heavier.

    Args:
        root: the folder that `proc` and `sys` lie in.
    """
    opencv = imported("cv2", OPENCV_DISTRIBUTIONS)
    claims = tuple(f"{name} {version}" for name in OPENCV_DISTRIBUTIONS if (version := _version((name,))))
    return Facts(
        python=sys.version_info[:3],
        executable=sys.executable,
        system=f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}, {platform.machine()}",
        cpu_model=_cpu_model(root),
        machine_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(root),
        memory_bytes=memory_bytes(root),
        onnxruntime=_with_providers(imported("onnxruntime", ONNXRUNTIME_DISTRIBUTIONS)),
        opencv=Package(opencv.name, opencv.version, opencv.error, claims),
        nvidia=_nvidia(root),
        tensorrt=tuple(
            installed(flavour, (flavour.replace("_", "-") + cuda for cuda in ("", "-cu13", "-cu12")))
            for flavour in TENSORRT_FLAVOURS
        ),
        others=(*(installed(module, (name,)) for module, name in _OTHER_DISTRIBUTIONS.items()), _nvrtc()),
    )


def installed(module: str, distributions: Iterable[str]) -> Package:
    """A package by the metadata of the first of its distributions that is here, without importing it."""
    version = _version(distributions)
    if version is None and _is_importable(module):
        version = "unknown"
    return Package(module, version)


def imported(module: str, distributions: Iterable[str]) -> Package:
    """A package that was imported, or why it could not be."""
    package = installed(module, distributions)
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # a broken native library raises what it likes
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module
        return Package(module, package.version, None if is_absent and package.version is None else str(error))
    return Package(module, str(getattr(loaded, "__version__", package.version)))


def _nvrtc() -> Package:
    """CUDA's compiler: out of its package, or else of a toolkit that the loader or `CUDA_HOME` knows."""
    version = _version(NVRTC_DISTRIBUTIONS)
    if version is None:
        home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
        is_in_home = home is not None and any(Path(home).glob("lib*/**/libnvrtc.so*"))
        version = "of a CUDA toolkit" if is_in_home or ctypes.util.find_library("nvrtc") else None
    return Package("nvrtc", version)


def _with_providers(package: Package) -> Package:
    if not package.is_usable:
        return package
    providers = importlib.import_module(package.name).get_available_providers()
    return Package(package.name, package.version, details=tuple(providers))


def _version(distributions: Iterable[str]) -> str | None:
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _cpu_model(root: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", read_or_empty(root / "proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def _nvidia(root: Path) -> Nvidia:
    loaded = read_or_empty(root / "proc/driver/nvidia/version")
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", loaded)
    driver = found[0] if found else None
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        note = "the GPUs cannot be listed without nvidia-ml-py" if loaded else "no NVIDIA driver is loaded"
        return Nvidia(driver, note=note)
    try:
        nvml.nvmlInit()
        try:
            return Nvidia(str(nvml.nvmlSystemGetDriverVersion()), _gpus(nvml))
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return Nvidia(driver, note=f"NVML: {error}")


def _gpus(nvml: ModuleType) -> tuple[Gpu, ...]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return tuple(
        Gpu(
            name=str(nvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            compute_capability=".".join(str(part) for part in nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        )
        for handle in handles
    )

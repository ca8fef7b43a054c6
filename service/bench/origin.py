"""Where a recording comes from: machine, versions, the model's files; and whether two recordings can be compared."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import service
from service.bench.measure import Trial
from service.bench.recording import Origin
from service.cards import CARD_FILE
from service.machine import ROOT, read_or_empty, usable_cores
from service.models import TENSORRT_PLATFORM, ModelSpec
from service.repository.layout import ModelFolder
from service.telemetry.nvml import NvmlUnavailable, load_nvml

_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt-cu12", "tensorrt-cu13", "cuda-core")
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Mismatch:
    """In what two recordings differ.

    Attributes:
        machine: why their times do not compare; empty if they do.
        others: what differs besides, which may be what is to be judged.
    """

    machine: tuple[str, ...]
    others: tuple[str, ...]


def origin_of(folder: ModelFolder, spec: ModelSpec, trial: Trial, *, cpu_threads: int, root: Path = ROOT) -> Origin:
    """The origin of what is recorded now.

    Args:
        folder: the model's.
        spec: the opened model.
        trial: how it is driven.
        cpu_threads: of ONNX Runtime.
        root: the folder that `proc` and `sys` lie in.
    """
    version = folder.version(spec.version)
    files = [folder.path / CARD_FILE, *filter(None, (version.onnx, version.plan))]
    is_on_gpu = spec.platform == TENSORRT_PLATFORM
    return Origin(
        model=f"{spec.name}/{spec.version}",
        machine={
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(root),
            "cores": f"{usable_cores(root):g}",
            **({"gpu": _gpu(spec.card.lanes.device)} if is_on_gpu else {"threads": str(cpu_threads)}),
        },
        versions={"inferlane": service.__version__, "python": platform.python_version(), **_versions()},
        digests={path.name: _digest(path) for path in files if path.exists()},
        load={
            "platform": spec.platform,
            "lanes": str(trial.lane_counts[0]),
            "request_rows": str(trial.rows_per_request or "all"),
            "registered": str(trial.is_registered).lower(),
        },
    )


def mismatch(was: Origin, now: Origin) -> Mismatch:
    """What differs between two origins; the load counts to the machine, for it changes times as much."""
    return Mismatch(
        machine=(*_differences(was.machine, now.machine), *_differences(was.load, now.load)),
        others=(
            *_differences({"model": was.model}, {"model": now.model}),
            *_differences(was.versions, now.versions),
            *(f"{name} is another file" for name in _changed(was.digests, now.digests)),
        ),
    )


def _differences(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name} was {was.get(name, 'absent')}, is {now.get(name, 'absent')}" for name in _changed(was, now))


def _changed(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in dict.fromkeys((*was, *now)) if was.get(name) != now.get(name)]


def _processor(root: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", read_or_empty(root / "proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def _gpu(device: int) -> str:
    """The GPU's name and its driver, which belong together: times change with either."""
    try:
        nvml = load_nvml()
    except NvmlUnavailable:
        return "unknown"
    try:
        name = str(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(device)))
        return f"{name}, driver {nvml.nvmlSystemGetDriverVersion()}"
    except nvml.NVMLError:
        return "unknown"
    finally:
        nvml.nvmlShutdown()


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()

"""What TensorRT has timed before, kept between builds: one file per GPU, TensorRT and CUDA.

A cache saves time and never decides whether a plan can be built: one that TensorRT refuses is left out, and replaced by
what the build has timed.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.events import LogLine, OnEvent
from service.runtime.trt.manifest import Machine

_REFUSALS = ("timing cache", "unknown graph")


@dataclass(frozen=True, slots=True)
class AttachedCache:
    """A cache in use.

    Attributes:
        native: TensorRT's object, which must outlive the build.
        is_loaded: whether it holds what an earlier build has timed.
    """

    native: Any
    is_loaded: bool


def cache_path(folder: Path, machine: Machine, tensorrt_version: str) -> Path:
    """The file for one GPU, TensorRT and CUDA."""
    gpu = re.sub(r"[^a-z0-9]+", "-", machine.gpu_name.lower()).strip("-")
    capability, cuda = (".".join(map(str, version)) for version in (machine.compute_capability, machine.cuda_version))
    return folder / f"{gpu}-sm{capability}-tensorrt{tensorrt_version}-cuda{cuda}.timing-cache"


def attach(config: Any, path: Path | None, on_event: OnEvent) -> AttachedCache:
    """Gives a configuration the cache in `path`, or an empty one."""
    content = _read(path, on_event)
    if content:
        try:
            cache = config.create_timing_cache(content)
            if cache is not None and config.set_timing_cache(cache, False):
                return AttachedCache(cache, is_loaded=True)
        except (RuntimeError, TypeError):
            pass
        on_event(LogLine("warning", f"the timing cache {path} does not fit this machine; the build goes on without"))
    return start_anew(config)


def is_to_blame(words: str) -> bool:
    """Whether a build's errors are about the cache that it loaded: so 8.6.0 refuses even what it wrote itself."""
    return any(refusal in words.lower() for refusal in _REFUSALS)


def start_anew(config: Any) -> AttachedCache:
    """Gives a configuration an empty cache."""
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    return AttachedCache(cache, is_loaded=False)


def store(cache: AttachedCache, path: Path, on_event: OnEvent) -> None:
    """Writes what a build has timed; another build that writes at the same time wins or loses as a whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(bytes(cache.native.serialize()))
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        on_event(LogLine("warning", f"the timing cache {path} cannot be written: {error.strerror}"))


def _read(path: Path | None, on_event: OnEvent) -> bytes:
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        on_event(LogLine("warning", f"the timing cache {path} cannot be read: {error.strerror}"))
        return b""

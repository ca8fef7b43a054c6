"""The tasks that have kernels, and how a model gets them: fitted to it, compiled and loaded, or left to the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernels.compile import Toolchain, nvrtc
from kernels.launch import DriverApi, Kernels, driver_api
from service.models import ModelSpec
from service.runtime.cuda.device import Cuda
from service.runtime.trt.device_kernels import KernelSource
from service.runtime.trt.media.classify import classify_task
from service.runtime.trt.media.detect import detect_task
from service.runtime.trt.media.embed import embed_task
from service.runtime.trt.media.form import DeviceTask, LoadedTask, NotOnDevice
from service.runtime.trt.profiles import BucketShapes, is_data_dependent

_TASKS: Mapping[str, Callable[[ModelSpec], DeviceTask | None]] = {
    "classify": classify_task,
    "detect": detect_task,
    "embed": embed_task,
}

_log = logging.getLogger(__name__)


def load_device_task(
    cuda: Cuda,
    spec: ModelSpec,
    shapes: Sequence[BucketShapes],
    *,
    cache: Path,
    find_toolchain: Callable[[], Toolchain] = nvrtc,
    find_driver: Callable[[], DriverApi] = driver_api,
) -> LoadedTask | None:
    """The kernels of a model's task, on the device that the calling thread uses; takes a second the first time.

    None where the card does not want them or the task has none, and where they do not fit the model or this machine,
    which is logged with what would mend it: the host does the same work, and takes longer.

    Args:
        cuda: the process's CUDA.
        spec: the model.
        shapes: all of its buckets.
        cache: folder of compiled kernels; `~` is the user's home.
        find_toolchain: gives what compiles.
        find_driver: gives what loads.

    Raises:
        ModelLoadFailed: the model does not fit its task at all.
        DeviceError: the device is lost.
    """
    make = _TASKS.get(spec.card.task)
    if make is None or not spec.card.kernels_enabled:
        return None
    try:
        _require_known_sizes(spec, shapes)
        task = make(spec)
    except NotOnDevice as error:
        _log.warning(
            "model '%s': task '%s' runs on the host: %s; kernels = \"off\" in the card says that this is meant",
            spec.name,
            spec.card.task,
            error.reason,
        )
        return None
    source = KernelSource(cache, find_toolchain, find_driver)
    return None if task is None else _loaded(cuda, spec, task, source)


def _require_known_sizes(spec: ModelSpec, shapes: Sequence[BucketShapes]) -> None:
    if spec.buckets.is_exact:
        raise NotOnDevice(f"{', '.join(spec.buckets.exact_dims)} have no sizes in [buckets], so no graph is known")
    if any(is_data_dependent(output) for each in shapes for output in each.outputs):
        raise NotOnDevice("the model has outputs whose sizes depend on the data; export it without them")


def _loaded(cuda: Cuda, spec: ModelSpec, task: DeviceTask, source: KernelSource) -> LoadedTask | None:
    kernels = source.load(cuda, task.sources, device=spec.card.lanes.device)
    if isinstance(kernels, Kernels):
        return LoadedTask(task, kernels)
    _log.warning("model '%s': task '%s' runs on the host, which is slower: %s", spec.name, spec.card.task, kernels)
    return None

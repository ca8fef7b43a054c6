"""Which backend a model gets: the one module of the server that knows both, and imports their libraries when needed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from service.cards import ModelCard
from service.errors import BuilderMissing, DeviceError, ModelLoadFailed
from service.models import TENSORRT_PLATFORM
from service.repository.layout import ONNX_FILE, PLAN_SUFFIX, VersionFolder
from service.runtime.golden import Reference
from service.runtime.marks import MarkedBackend, load_nvtx
from service.runtime.protocol import Backend
from service.settings import KERNEL_CACHE
from service.telemetry.snapshot_probes import Peaks

if TYPE_CHECKING:
    from service.runtime.cuda.device import Cuda
    from service.runtime.trt.flavour import Flavour

MAX_REFERENCE_BYTES = 512 << 20
"""Of an ONNX model that is opened beside its plan: about a second's work of the start-up."""

_log = logging.getLogger(__name__)


def open_backend(
    card: ModelCard,
    version: VersionFolder,
    *,
    cpu_threads: int,
    build_plan: Callable[[], Path] | None = None,
    kernel_cache: Path = KERNEL_CACHE,
) -> Backend:
    """The backend that a card asks for; its library is imported only here.

    `auto` means TensorRT where this machine can run it and there is a plan or something that builds one, else ONNX
    Runtime. A plan that TensorRT refuses, or a model that it cannot build, is an error all the same: a model that
    silently ran on the CPU would be slow and nobody knew why.

    Args:
        card: the model's card.
        version: its files.
        cpu_threads: threads of ONNX Runtime.
        build_plan: builds the plan where none is there; None where none is to be built.
        kernel_cache: folder that keeps the compiled kernels of tasks; made if absent, `~` is the user's home.

    Raises:
        ModelLoadFailed: this machine has no such backend, or the model does not open, or its plan cannot be built.
        CardError: the card contradicts the model.
        DeviceError: the GPU cannot be used.
    """
    if card.backend != "onnxruntime" and version.plan is not None:
        tensorrt = _runner(card, version)
        if tensorrt is not None:
            return tensorrt.open(card, version.version, version.plan, version.onnx, kernel_cache)
    if version.onnx is None:
        raise ModelLoadFailed(
            f"model '{card.name}' has a plan and no {ONNX_FILE}, but its card asks for ONNX Runtime; "
            'put the ONNX model beside the plan, or set backend = "tensorrt"'
        )
    if card.backend != "onnxruntime" and version.plan is None and build_plan is not None:
        backend = _built(card, version, build_plan, kernel_cache)
        if backend is not None:
            return backend
    elif card.backend == "tensorrt":
        raise ModelLoadFailed(
            f"model '{card.name}' asks for TensorRT, but version {version.version} has no *{PLAN_SUFFIX} file; build "
            f'a plan from its {ONNX_FILE} with `inferlane build {version.path}`, or set backend = "auto"'
        )
    from service.runtime.onnx.backend import OnnxBackend  # noqa: PLC0415

    return OnnxBackend.open(card, version=version.version, model_path=version.onnx, cpu_threads=cpu_threads)


def marked(backend: Backend) -> Backend:
    """The backend with lanes that mark what they do on Nsight Systems' timeline.

    Raises:
        ModelLoadFailed: the package `nvtx` is not installed.
    """
    return MarkedBackend(backend, load_nvtx())


def open_reference(backend: Backend, *, cpu_threads: int) -> Reference | None:
    """What a plan is compared with when it is made ready: the ONNX model that it was built from, where it is at hand.

    None for a model on ONNX Runtime, for a plan without its ONNX model, and where that cannot be opened, which is
    logged. Blocking, for about a second where the model is large.
    """
    if backend.spec.platform != TENSORRT_PLATFORM:
        return None
    backend = backend.backend if isinstance(backend, MarkedBackend) else backend
    from service.runtime.onnx.reference import open_reference as open_onnx  # noqa: PLC0415
    from service.runtime.trt.backend import TensorRTBackend  # noqa: PLC0415

    if not isinstance(backend, TensorRTBackend) or backend.onnx_path is None:
        return None
    try:
        return open_onnx(
            backend.onnx_path,
            backend.spec,
            cpu_threads=cpu_threads,
            fixed_inputs=backend.fixed_inputs,
            max_bytes=MAX_REFERENCE_BYTES,
        )
    except ModelLoadFailed as error:
        _log.info("model '%s': its plan is not compared with %s: %s", backend.spec.name, ONNX_FILE, error.message)
        return None


def pci_bus_id(backend: Backend) -> str | None:
    """Where the GPU is that runs a backend, such as `0000:3B:00.0`; None where none does.

    Raises:
        DeviceError: the GPU cannot be asked.
    """
    if backend.spec.platform != TENSORRT_PLATFORM:
        return None
    return _tensorrt().cuda.pci_bus_id(backend.spec.card.lanes.device)


@dataclass(frozen=True, slots=True)
class MachinePeaks:
    """What the machine that runs a model does at best, and its name: a GPU's, or `CPU, 4 threads`."""

    machine: str
    peaks: Peaks


def machine_peaks(backend: Backend, *, cpu_threads: int, kernel_cache: Path = KERNEL_CACHE) -> MachinePeaks:
    """Measures the ceilings of the machine that runs a backend, once in a process; about a second, blocking.

    Traffic at the same time lowers them. A measurement that fails is tried again at the next call.

    Args:
        backend: the opened model.
        cpu_threads: threads of ONNX Runtime, as for `open_backend`; measured with those of one lane.
        kernel_cache: folder that keeps compiled kernels.

    Raises:
        ModelLoadFailed: the kernels do not compile here, or ONNX Runtime is missing.
        DeviceError: the GPU has no memory left for it, or fails.
    """
    if backend.spec.platform == TENSORRT_PLATFORM:
        return _gpu_peaks(backend.spec.card.lanes.device, kernel_cache)
    return _cpu_peaks(backend.spec.card.lanes.threads_per_lane or max(1, cpu_threads // backend.lane_count))


@cache
def _cpu_peaks(threads: int) -> MachinePeaks:
    from service.runtime.onnx.peaks import measure_cpu_peaks  # noqa: PLC0415

    return MachinePeaks(f"CPU, {threads} thread{'s' * (threads > 1)}", measure_cpu_peaks(threads))


@cache
def _gpu_peaks(device: int, kernel_cache: Path) -> MachinePeaks:
    from kernels.compile import nvrtc  # noqa: PLC0415
    from kernels.launch import driver_api, load_kernels  # noqa: PLC0415
    from service.layers.gpu_peaks import SOURCES, measure_peaks  # noqa: PLC0415

    cuda = _tensorrt().cuda
    cuda.use_device(device)
    folder = kernel_cache.expanduser()
    kernels = load_kernels(cuda, driver_api(), nvrtc(), device=device, cache=folder, sources=SOURCES)
    return MachinePeaks(cuda.device_name(device), measure_peaks(cuda, kernels))


@dataclass(frozen=True, slots=True)
class _TensorRT:
    """The TensorRT and the CUDA of this process."""

    flavour: Flavour
    cuda: Cuda

    def open(self, card: ModelCard, version: str, plan: Path, onnx: Path | None, kernel_cache: Path) -> Backend:
        """Opens a plan, and gives its task the kernels that there are for it."""
        from service.runtime.trt.backend import TensorRTBackend  # noqa: PLC0415
        from service.runtime.trt.device_kernels import load_fills  # noqa: PLC0415
        from service.runtime.trt.media.tasks import load_device_task  # noqa: PLC0415

        backend = TensorRTBackend.open(
            card, version=version, plan_path=plan, flavour=self.flavour, cuda=self.cuda, onnx_path=onnx
        )
        try:
            backend.load_task(partial(load_device_task, cache=kernel_cache))
            backend.load_fills(partial(load_fills, cache=kernel_cache))
        except BaseException as error:
            if not (isinstance(error, DeviceError) and error.is_sticky):
                backend.close()
            raise
        return backend


@cache
def _tensorrt() -> _TensorRT:
    """What runs plans on this machine; made once, because all models of a process share one view of CUDA.

    Raises:
        ModelLoadFailed: TensorRT, CUDA or a GPU is missing.
    """
    from service.runtime.cuda.device import Cuda  # noqa: PLC0415
    from service.runtime.trt.flavour import find_flavour  # noqa: PLC0415

    return _TensorRT(find_flavour(), Cuda.load())


def _runner(card: ModelCard, version: VersionFolder) -> _TensorRT | None:
    """What runs the version's plan; None where the model is to run on ONNX Runtime instead, which is logged."""
    try:
        return _tensorrt()
    except ModelLoadFailed as error:
        if card.backend == "tensorrt" or version.onnx is None:
            raise ModelLoadFailed(f"model '{card.name}' has a plan for TensorRT. {error.message}") from error
        _log.warning("model '%s' runs on ONNX Runtime although it has a plan: %s", card.name, error.message)
        return None


def _built(
    card: ModelCard, version: VersionFolder, build_plan: Callable[[], Path], kernel_cache: Path
) -> Backend | None:
    """A model whose plan is built first; None where `auto` has to do without, which is no news without a GPU."""
    try:
        tensorrt = _tensorrt()
    except ModelLoadFailed as error:
        if card.backend == "tensorrt":
            raise ModelLoadFailed(f"model '{card.name}' asks for TensorRT. {error.message}") from error
        return None
    try:
        tensorrt.flavour.require_builder()
        # Without its ONNX model: the builder has compared them just now.
        return tensorrt.open(card, version.version, build_plan(), None, kernel_cache)
    except BuilderMissing as error:
        if card.backend == "tensorrt":
            raise ModelLoadFailed(f"model '{card.name}' asks for TensorRT and has no plan. {error.message}") from error
        _log.warning("model '%s' runs on ONNX Runtime, for it has no plan: %s", card.name, error.message)
        return None

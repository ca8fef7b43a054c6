"""The kernels of a backend: those of its task, and the one that its graphs have in the place of fills.

None of them is needed to serve: where one cannot be had, other code does its work, and takes longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernels.compile import Toolchain, nvrtc
from kernels.graph_fills import fills_as_kernels
from kernels.launch import DriverApi, Kernels, driver_api, load_kernels
from service.errors import DeviceError, ModelLoadFailed
from service.models import ModelSpec
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.graph import Rework
from service.runtime.trt.media.form import LoadedTask

FILL_SOURCE = "fill"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceKernels:
    """What is loaded on the engine's device. Lanes and probes share it; whoever holds it closes it after all of them.

    Attributes:
        media: the task with its kernels; None where the host does its work.
        fills: kernels that hold the source `fill`; None where graphs keep the fills they were captured with.
    """

    media: LoadedTask | None = None
    fills: Kernels | None = None

    @property
    def rework(self) -> Rework | None:
        """What is done to captured graphs."""
        return None if self.fills is None else partial(fills_as_kernels, self.fills)

    def close(self) -> None:
        """Unloads all of them; idempotent.

        Raises:
            DeviceError: the driver refused.
        """
        try:
            if self.media is not None:
                self.media.kernels.close()
        finally:
            if self.fills is not None:
                self.fills.close()


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Where kernels come from.

    Attributes:
        cache: folder of compiled kernels; `~` is the user's home.
        find_toolchain: gives what compiles.
        find_driver: gives what loads.
    """

    cache: Path
    find_toolchain: Callable[[], Toolchain] = nvrtc
    find_driver: Callable[[], DriverApi] = driver_api

    def load(self, cuda: Cuda, sources: Sequence[str], *, device: int) -> Kernels | str:
        """Loads kernels on the device that the calling thread uses; takes a second the first time.

        Args:
            cuda: the process's CUDA.
            sources: names in `kernels.specs.SOURCES`.
            device: the ordinal.

        Returns:
            The kernels, or why this machine has none and what would mend it.

        Raises:
            DeviceError: the device is lost.
        """
        try:
            driver, toolchain, cache = self.find_driver(), self.find_toolchain(), _expanded(self.cache)
            return load_kernels(cuda, driver, toolchain, device=device, cache=cache, sources=sources)
        except (ModelLoadFailed, DeviceError) as error:
            if isinstance(error, DeviceError) and error.is_sticky:
                raise
            return error.message
        except RuntimeError as error:  # the binding's, of a function that the driver does not have
            return f"the driver cannot load kernels ({error}); update it to one for CUDA 12 or later"


def load_fills(
    cuda: Cuda,
    spec: ModelSpec,
    *,
    cache: Path,
    find_toolchain: Callable[[], Toolchain] = nvrtc,
    find_driver: Callable[[], DriverApi] = driver_api,
) -> Kernels | None:
    """The kernel `fill`, on the device that the calling thread uses.

    None where the card wants no kernels or this machine has none: graphs then keep their fills.

    Args:
        cuda: the process's CUDA.
        spec: the model.
        cache: folder of compiled kernels.
        find_toolchain: gives what compiles.
        find_driver: gives what loads.

    Raises:
        DeviceError: the device is lost.
    """
    if not spec.card.kernels_enabled:
        return None
    source = KernelSource(cache, find_toolchain, find_driver)
    kernels = source.load(cuda, (FILL_SOURCE,), device=spec.card.lanes.device)
    if isinstance(kernels, Kernels):
        return kernels
    _log.debug("model '%s': fills in its graphs stay fills, which take longer to launch: %s", spec.name, kernels)
    return None


def _expanded(folder: Path) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise ModelLoadFailed(
            f"compiled kernels cannot be kept in {folder}, for this user has no home; set INFERLANE_KERNEL_CACHE to a "
            "folder that can be written"
        ) from error

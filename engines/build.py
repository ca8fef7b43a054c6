"""ONNX → plan, in this process. The plan gets its name when it is complete and accepted, or never."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from engines.events import OnEvent
from engines.report import AccuracyReport, BuildReport
from engines.request import BuildRequest
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import Flavour

AccuracyCheck: TypeAlias = Callable[[Path], AccuracyReport]
"""Opens the plan at a temporary path, its manifest beside it, and compares; raises ModelLoadFailed to veto."""


def build_plan(
    request: BuildRequest,
    *,
    flavour: Flavour,
    cuda: Cuda,
    on_event: OnEvent,
    check: AccuracyCheck | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> BuildReport:
    """Builds the plan of a model's version and writes it with its manifest. Takes minutes.

    Args:
        request: what to build.
        flavour: the TensorRT to build with.
        cuda: the process's CUDA; the calling thread's device becomes the one of the request or the card.
        on_event: hears of phases and lines, but not of the end, which the caller knows.
        check: may veto the plan before it gets its name.
        is_cancelled: asked between steps; once true, the build ends as soon as TensorRT allows.

    Raises:
        BuildCancelled: it was cancelled.
        ModelLoadFailed: there is no such model, it cannot be built, or `check` vetoed it.
        CardError: the card is malformed or contradicts the model.
        DeviceError: the GPU cannot be used.
    """
    raise NotImplementedError

"""A process whose GPU is the emulated one: TensorRT is the fake, kernels run, and nothing is compiled for a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from engines.build import build_plan
from engines.request import BuildOptions, BuildRequest
from kernels.compile import Toolchain
from service import backends
from service.runtime.cuda.device import Cuda
from service.runtime.trt.device_kernels import load_fills
from service.runtime.trt.flavour import describe
from service.runtime.trt.media.tasks import load_device_task
from tests.doubles.emulated_device import EmulatedCuda, EmulatedDriver
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.media_models import CARDS, write_model


@contextmanager
def emulated_gpu(repository: Path, models: dict[str, str]) -> Iterator[EmulatedCuda]:
    """All models on TensorRT that this process opens meanwhile run on it; it is empty again at the end.

    Args:
        repository: gets each model with a plan.
        models: names of `media_models.MAKERS`, and what is added to their cards before everything else.
    """
    api = EmulatedCuda()
    flavour = describe("tensorrt", fake_tensorrt(api, "10"))
    toolchain = Toolchain("13.0", lambda text, architecture: b"none")
    for name, top in models.items():
        write_model(repository / name, name, top + CARDS[name])
        request = BuildRequest(
            model_folder=repository / name,
            version="1",
            plan_path=repository / name / "1" / "model.plan",
            options=BuildOptions(),
        )
        build_plan(request, flavour=flavour, cuda=Cuda(api), on_event=lambda event: None)
    machine = {"find_driver": lambda: EmulatedDriver(api), "find_toolchain": lambda: toolchain}
    backends._tensorrt.cache_clear()
    with (
        patch("service.runtime.trt.flavour.find_flavour", lambda: flavour),
        patch("service.runtime.cuda.device.runtime_api", lambda: api),
        patch("service.runtime.trt.media.tasks.load_device_task", partial(load_device_task, **machine)),
        patch("service.runtime.trt.device_kernels.load_fills", partial(load_fills, **machine)),
    ):
        yield api
    backends._tensorrt.cache_clear()
    assert api.violations == []
    assert api.live_objects() == {}

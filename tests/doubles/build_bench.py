"""A model's folder and a build of it, on a fake TensorRT and a fake CUDA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.build import AccuracyCheck, build_plan
from engines.events import Event, LogLine
from engines.report import BuildReport
from engines.request import BuildOptions, BuildRequest
from service.repository.card import load_card
from service.runtime.cuda.device import Cuda
from service.runtime.trt.backend import TensorRTBackend
from service.runtime.trt.flavour import Flavour, describe
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_world import World


@dataclass
class BuildBench:
    """A folder `model` with a card and an ONNX model, and what builds and opens its plan."""

    folder: Path
    flavour: Flavour
    cuda: Cuda
    events: list[Event] = field(default_factory=list)

    @property
    def plan_path(self) -> Path:
        return self.folder / "model.plan"

    @property
    def onnx_path(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def world(self) -> World:
        world: World = self.flavour.module.world
        return world

    @property
    def lines(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, LogLine)]

    def card(self, text: str) -> None:
        (self.folder / "model.toml").write_text(text, encoding="utf-8")

    def request(self, **options: Any) -> BuildRequest:
        return BuildRequest(
            model_folder=self.folder, version="", plan_path=self.plan_path, options=BuildOptions(**options)
        )

    def build(
        self,
        *,
        check: AccuracyCheck | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> BuildReport:
        return build_plan(
            self.request(**options),
            flavour=self.flavour,
            cuda=self.cuda,
            on_event=self.events.append,
            check=check,
            is_cancelled=is_cancelled,
        )

    def open(self, plan_path: Path | None = None) -> TensorRTBackend:
        return TensorRTBackend.open(
            load_card(self.folder),
            version="1",
            plan_path=plan_path or self.plan_path,
            flavour=self.flavour,
            cuda=self.cuda,
        )

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


def build_bench(folder: Path, generation: str) -> BuildBench:
    """A bench whose model's folder exists and is empty."""
    (folder / "model").mkdir(parents=True)
    fake = FakeCuda()
    flavour = describe("tensorrt_lean" if generation == "11-lean" else "tensorrt", fake_tensorrt(fake, generation))
    return BuildBench(folder / "model", flavour, Cuda(fake).probed())

"""Gathers the facts of a plan: of its bytes and manifest on any machine, of its engine where a GPU can load it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from service.errors import DeviceError, ModelLoadFailed
from service.plan_report.facts import Check, EngineFacts, LayerRow, PlanFacts
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from service.runtime.trt.context import scratch_bytes
from service.runtime.trt.engine import Engine
from service.runtime.trt.files import read_regular
from service.runtime.trt.flavour import Flavour, find_flavour
from service.runtime.trt.inspector import LayerInfo, LayerTensor
from service.runtime.trt.layers import layers_at_optimum
from service.runtime.trt.manifest import Machine, Manifest, manifest_path, read_manifest
from service.runtime.trt.plan import PlanHeader, check_version, read_header, read_plan

MANIFEST = "manifest"
TENSORRT = "TensorRT"
GPU = "GPU"
ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Tools:
    """Where TensorRT and CUDA come from, and which GPU is asked; tests put doubles here."""

    find_flavour: Callable[[], Flavour] = find_flavour
    load_cuda: Callable[[], Cuda] = Cuda.load
    device: int = 0


def examine(path: Path, tools: Tools) -> PlanFacts:
    """Reads a plan and asks this machine about it. The GPU's memory holds the engine for a moment.

    Args:
        path: the plan; its manifest may lie beside it.
        tools: what is asked.

    Raises:
        ModelLoadFailed: it cannot be read, or is no plan.
    """
    plan = read_plan(path)
    header = read_header(plan, path.name)
    examination = _Examination(path, plan, header, tools)
    checks = tuple(examination.checks())
    return PlanFacts(
        path=str(path),
        plan_bytes=len(plan),
        sha256=examination.known_sha256 or hashlib.sha256(plan).hexdigest(),
        product=header.product,
        version=header.text,
        manifest=_manifest_content(path),
        checks=checks,
        engine=examination.engine,
    )


class _Examination:
    """The checks of a model's loading, one after another, as far as they lead.

    Attributes:
        engine: what the last check learns.
        known_sha256: the plan's digest, once its manifest was found to have the right one: a large plan is read once.
    """

    def __init__(self, path: Path, plan: bytes, header: PlanHeader, tools: Tools) -> None:
        self._name = path.name
        self._path = path
        self._plan = plan
        self._header = header
        self._tools = tools
        self._manifest: Manifest | None = None
        self._flavour: Flavour | None = None
        self._cuda: Cuda | None = None
        self.engine: EngineFacts | None = None
        self.known_sha256 = ""

    def checks(self) -> Iterator[Check]:
        """Yields each check's result; nothing follows one that failed."""
        for check in (self._check_manifest, self._check_tensorrt, self._check_gpu, self._check_engine):
            result = check()
            yield result
            if result.is_passed is False:
                return

    def _check_manifest(self) -> Check:
        try:
            self._manifest = read_manifest(self._path)
            if self._manifest is None:
                return Check(MANIFEST, None, f"no {manifest_path(self._path).name} beside it says what it should be")
            self._manifest.check_content(self._plan, self._name)
        except ModelLoadFailed as error:
            return Check(MANIFEST, False, error.message)
        self.known_sha256 = self._manifest.plan_sha256
        return Check(MANIFEST, True, "size and SHA-256 are those of the plan that was built")

    def _check_tensorrt(self) -> Check:
        try:
            self._flavour = self._tools.find_flavour()
        except ModelLoadFailed as error:
            return Check(TENSORRT, None, error.message)
        try:
            check_version(self._header, self._name, self._flavour, self._manifest)
        except ModelLoadFailed as error:
            return Check(TENSORRT, False, error.message)
        return Check(TENSORRT, True, f"{self._flavour.name} {self._flavour.version} runs plans of {self._header.text}")

    def _check_gpu(self) -> Check:
        device = self._tools.device
        try:
            cuda = self._tools.load_cuda()
            cuda.use_device(device)
            here = Machine.here(cuda, device)
        except (DeviceError, ModelLoadFailed) as error:
            return Check(GPU, None, error.message)
        self._cuda = cuda
        if self._manifest is None:
            return Check(GPU, True, f"{here.gpu_name}; without a manifest TensorRT alone can tell whether it fits")
        try:
            self._manifest.check_machine(here, self._name)
        except ModelLoadFailed as error:
            return Check(GPU, False, error.message)
        built = self._manifest.machine
        if here.gpu_name != built.gpu_name:
            return Check(
                GPU, True, f"{here.gpu_name} runs it; it was built, and its kernels chosen, on {built.gpu_name}"
            )
        return Check(GPU, True, f"{here.gpu_name} is what it was built for")

    def _check_engine(self) -> Check:
        if self._flavour is None or self._cuda is None:
            return Check(ENGINE, None, "was not loaded: that needs TensorRT and a GPU")
        try:
            self.engine = self._ask_engine(self._flavour, self._cuda)
        except (DeviceError, ModelLoadFailed) as error:
            return Check(ENGINE, False, error.message)
        return Check(ENGINE, True, "loads")

    def _ask_engine(self, flavour: Flavour, cuda: Cuda) -> EngineFacts:
        manifest = self._manifest
        engine = Engine.deserialise(
            flavour,
            self._plan,
            self._name,
            dims={} if manifest is None else dict(manifest.dims),
            host_code_allowed=manifest is not None and manifest.is_version_compatible,
        )
        try:
            with Stream(cuda) as stream:
                return _engine_facts(engine, stream)
        finally:
            engine.close()


def _engine_facts(engine: Engine, stream: Stream) -> EngineFacts:
    info = layers_at_optimum(engine, stream=stream)
    return EngineFacts(
        inputs=engine.inputs,
        outputs=engine.outputs,
        profiles=engine.profiles,
        scratch_bytes=tuple(scratch_bytes(engine, index) for index in range(len(engine.profiles))),
        layers=None if info is None else tuple(map(_layer_row, info.layers)),
        fixed_inputs={name: tuple(values.ravel().tolist()) for name, values in engine.shape_inputs.items()},
    )


def _layer_row(layer: LayerInfo) -> LayerRow:
    return LayerRow(
        name=layer.name,
        kind=layer.kind,
        profile=layer.profile,
        precision=layer.precision,
        inputs=tuple(map(_shape, layer.inputs)),
        outputs=tuple(map(_shape, layer.outputs)),
        tactic=layer.tactic,
    )


def _shape(tensor: LayerTensor) -> str:
    return "x".join(map(str, tensor.dims)) or "scalar"


def _manifest_content(path: Path) -> dict[str, Any] | None:
    """The manifest for people to read, also where it is one that the server refuses."""
    try:
        content = orjson.loads(read_regular(manifest_path(path)))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None

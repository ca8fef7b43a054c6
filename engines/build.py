"""ONNX → plan, in this process. The plan gets its name when it is complete and accepted, or never."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from engines.config import BuildSettings, decide
from engines.events import LogLine, OnEvent
from engines.manifest_writer import Origin, manifest_text
from engines.onnx_facts import OnnxFacts, read_facts
from engines.plan_files import HiddenPlan
from engines.precision import Precision
from engines.report import AccuracyReport, BuildReport
from engines.request import BuildRequest
from engines.serialise import CANCELLED, BuildCancelled, Job, SerialisedPlan, Voice, serialise
from engines.timing_cache import cache_path
from service.errors import ModelLoadFailed
from service.repository.card import load_card
from service.repository.layout import ONNX_FILE, find
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from service.runtime.trt.context import scratch_bytes
from service.runtime.trt.engine import Engine
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.layers import layers_at_optimum
from service.runtime.trt.manifest import Machine
from service.tensors import DType

MEASURE_PHASE = "measure"

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
        check: may veto the plan before it gets its name; says its own phases.
        is_cancelled: asked between steps; once true, the build ends as soon as TensorRT allows.

    Raises:
        BuildCancelled: it was cancelled.
        ModelLoadFailed: there is no such model, it cannot be built, or `check` vetoed it.
        CardError: the card is malformed or contradicts the model.
        DeviceError: the GPU cannot be used.
    """
    flavour.require_builder()
    voice = Voice(on_event, is_cancelled)
    job, machine = _job(request, flavour, cuda)
    _warn_of_narrowed_types(flavour, job.facts, on_event)
    with HiddenPlan(request.plan_path) as hidden:
        built = serialise(flavour, job, voice)
        voice.started(MEASURE_PHASE)
        hidden.write(built.plan)
        report = _report(flavour, cuda, built, job.settings, request.plan_path)
        voice.finished(MEASURE_PHASE)
        write_manifest = _manifest_writer(hidden, built, _origin(flavour, cuda, job, machine, built.precision))
        write_manifest(report)
        if check is not None:
            report = replace(report, accuracy=check(hidden.path))
            write_manifest(report)
        if is_cancelled():
            raise BuildCancelled(CANCELLED)
        hidden.publish()
        return report


def _job(request: BuildRequest, flavour: Flavour, cuda: Cuda) -> tuple[Job, Machine]:
    """What is to be built, and the machine that builds it; its GPU is the calling thread's from here on."""
    card, onnx = load_card(request.model_folder), _onnx_of(request)
    facts = read_facts(onnx)
    device = card.lanes.device if request.options.device is None else request.options.device
    cuda.use_device(device)
    machine = Machine.here(cuda, device)
    settings = decide(request.options, card, cuda.memory_info().free_bytes)
    cache = request.options.timing_cache
    cached = None if cache is None else cache_path(cache, machine, flavour.version)
    return Job(onnx=onnx, facts=facts, card=card, settings=settings, cache_path=cached), machine


def _origin(flavour: Flavour, cuda: Cuda, job: Job, machine: Machine, precision: Precision) -> Origin:
    return Origin(
        machine=machine,
        driver_version=cuda.driver_version,
        tensorrt=f"{flavour.name} {flavour.version}",
        facts=job.facts,
        precision=precision,
        settings=job.settings,
    )


def _manifest_writer(hidden: HiddenPlan, built: SerialisedPlan, origin: Origin) -> Callable[[BuildReport], None]:
    """Writes the manifest as far as a report goes: before the check, which reads it, and with what the check found."""
    sha256 = hashlib.sha256(built.plan).hexdigest()
    return lambda report: hidden.write_manifest(manifest_text(origin, report, sha256))


def _onnx_of(request: BuildRequest) -> Path:
    version = find(request.model_folder.parent, request.model_folder.name).version(request.version)
    if version.onnx is None:
        raise ModelLoadFailed(
            f"'{version.path}' holds no {ONNX_FILE} to build from; put the model that the plan was built from there"
        )
    return version.onnx


def _report(
    flavour: Flavour, cuda: Cuda, built: SerialisedPlan, settings: BuildSettings, plan_path: Path
) -> BuildReport:
    """Opens the plan to learn what came of it; that it opens at all is the first check."""
    engine = Engine.deserialise(
        flavour, built.plan, plan_path.name, dims={}, host_code_allowed=settings.is_version_compatible
    )
    try:
        with Stream(cuda) as stream:
            info = layers_at_optimum(engine, stream=stream)
        layers = () if info is None else info.layers
        return BuildReport(
            plan_path=plan_path,
            plan_bytes=len(built.plan),
            build_s=built.build_s,
            precision=built.precision.text,
            profiles=built.profiles,
            layer_count=None if info is None else len(info.layers),
            layer_precisions=Counter(layer.precision or "unknown" for layer in layers),
            scratch_bytes=tuple(scratch_bytes(engine, profile) for profile in range(len(engine.profiles))),
            accuracy=None,
        )
    finally:
        engine.close()


def _warn_of_narrowed_types(flavour: Flavour, facts: OnnxFacts, on_event: OnEvent) -> None:
    """TensorRT 8.6 has no INT64: its parser narrows such inputs and outputs, which clients will notice."""
    wide = [tensor.name for tensor in (*facts.inputs, *facts.outputs) if tensor.dtype is DType.INT64]
    if wide and not hasattr(flavour.module.DataType, "INT64"):
        on_event(
            LogLine(
                "warning",
                f"{flavour.name} {flavour.version} has no INT64: {', '.join(wide)} become INT32 in the plan",
            )
        )

"""ONNX and card → the bytes of a plan. The part of a build that only TensorRT takes part in: no files but the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines import timing_cache
from engines.config import BuildSettings, configure
from engines.events import LogLine, OnEvent, PhaseFinished, PhaseStarted
from engines.network import create_network, parse, shape_inputs
from engines.onnx_facts import OnnxFacts
from engines.plugins import register_plugins
from engines.precision import Precision, choose_precision, typing_of
from engines.profiles import profiles_for
from engines.progress import native_logger, native_monitor
from service.cards import ModelCard
from service.errors import ModelLoadFailed, ServiceError
from service.runtime.trt.engine import ErrorLog
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.profiles import Profile, ranges_text

BUILD_PHASE = "build"
"""The phase around TensorRT's own."""


CANCELLED = "the build was cancelled; nothing was written"


class BuildCancelled(ServiceError):
    """The build was told to stop, and has left nothing."""

    reason = "cancelled"


@dataclass(frozen=True, slots=True)
class Voice:
    """How a build speaks and is spoken to.

    Attributes:
        on_event: hears what happens.
        is_cancelled: asked between steps.
    """

    on_event: OnEvent
    is_cancelled: Callable[[], bool]

    def started(self, phase: str) -> None:
        """Says that a phase without steps begins.

        Raises:
            BuildCancelled: the build was told to stop.
        """
        if self.is_cancelled():
            raise BuildCancelled(CANCELLED)
        self.on_event(PhaseStarted(phase, None, 0))

    def finished(self, phase: str) -> None:
        """Says that it ends."""
        self.on_event(PhaseFinished(phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be built.

    Attributes:
        onnx: the model.
        facts: what it says of itself.
        card: the model's card.
        settings: how.
        cache_path: where the timing cache is kept, or None.
    """

    onnx: Path
    facts: OnnxFacts
    card: ModelCard
    settings: BuildSettings
    cache_path: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SerialisedPlan:
    """A plan in memory.

    Attributes:
        plan: its bytes.
        precision: how it is typed.
        profiles: what it was built with.
        build_s: seconds that the builder took.
    """

    plan: bytes
    precision: Precision
    profiles: tuple[Profile, ...]
    build_s: float


def serialise(flavour: Flavour, job: Job, voice: Voice) -> SerialisedPlan:
    """Builds the plan on the calling thread's device. Takes minutes; the GIL is free meanwhile.

    Raises:
        BuildCancelled: it was told to stop.
        ModelLoadFailed: TensorRT has no builder, or cannot build the model; the message has its own words.
        CardError: the card contradicts the model.
    """
    flavour.require_builder()
    typing = typing_of(flavour.module, f"{flavour.name} {flavour.version}")
    is_weak_allowed = job.settings.is_weak_typing_allowed
    precision = choose_precision(job.card.precision.mode, job.facts, typing, is_weak_typing_allowed=is_weak_allowed)
    parsed = _parsed(flavour, job, precision, voice)
    profiles = profiles_for(job.card, job.facts.inputs, job.facts.outputs, shape_inputs(parsed.network))
    voice.on_event(LogLine("info", f"{precision.text}, {ranges_text(profiles)}"))
    voice.started(BUILD_PHASE)
    started = time.monotonic()
    monitor = native_monitor(flavour.module, voice.on_event, voice.is_cancelled, BUILD_PHASE)
    plan = _built(_Work(job, precision, profiles, parsed, monitor), voice)
    build_s = time.monotonic() - started
    voice.finished(BUILD_PHASE)
    return SerialisedPlan(plan=plan, precision=precision, profiles=profiles, build_s=build_s)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """TensorRT's objects of one build, in the order in which they came to be; the parser owns the network's weights."""

    module: Any
    errors: ErrorLog
    logger: Any
    builder: Any
    network: Any
    parser: Any


@dataclass(frozen=True, slots=True)
class _Work:
    job: Job
    precision: Precision
    profiles: tuple[Profile, ...]
    parsed: _Parsed
    monitor: Any


def _parsed(flavour: Flavour, job: Job, precision: Precision, voice: Voice) -> _Parsed:
    voice.started("parse")
    module, errors = flavour.module, ErrorLog()
    logger = native_logger(module, voice.on_event, errors)
    try:
        builder = module.Builder(logger)
    except TypeError as error:
        raise ModelLoadFailed(
            f"{flavour.name} {flavour.version} is installed but its builder does not start: {errors.take()}; a driver, "
            "a GPU with free memory and libraries that fit together are needed (`inferlane doctor` looks closer)"
        ) from error
    network = create_network(module, builder, precision)
    register_plugins(flavour, job.facts)
    parser = parse(module, network, logger, job.onnx, job.facts)
    voice.finished("parse")
    return _Parsed(module, errors, logger, builder, network, parser)


def _built(work: _Work, voice: Voice) -> bytes:
    parsed, cache_path = work.parsed, work.job.cache_path
    config = _configured(work)
    cache = timing_cache.attach(config, cache_path, voice.on_event)
    plan = parsed.builder.build_serialized_network(parsed.network, config)
    words = "" if plan is not None else parsed.errors.take()
    if plan is None and cache.is_loaded and timing_cache.is_to_blame(words) and not voice.is_cancelled():
        voice.on_event(
            LogLine("warning", f"TensorRT refuses its timing cache ({words}); the build begins anew without")
        )
        config = _configured(work)
        cache = timing_cache.start_anew(config)
        plan = parsed.builder.build_serialized_network(parsed.network, config)
        words = "" if plan is not None else parsed.errors.take()
    if voice.is_cancelled():
        raise BuildCancelled(CANCELLED)
    if plan is None:
        raise ModelLoadFailed(
            f"TensorRT {parsed.module.__version__} cannot build the model: {words}; if memory is short, give the build "
            "a GPU of its own or smaller profiles, else try another optimization level or precision"
        )
    if cache_path is not None:
        timing_cache.store(cache, cache_path, voice.on_event)
    return bytes(plan)


def _configured(work: _Work) -> Any:
    parsed = work.parsed
    config = parsed.builder.create_builder_config()
    configure(parsed.module, config, work.job.settings, work.precision)
    _add_profiles(parsed, config, work.profiles)
    if work.monitor is not None:
        config.progress_monitor = work.monitor
    return config


def _add_profiles(parsed: _Parsed, config: Any, profiles: tuple[Profile, ...]) -> None:
    """Tells the ranges of dynamic inputs and of host values; an engine with neither has a profile by itself."""
    values = shape_inputs(parsed.network)
    tensors = [parsed.network.get_input(index) for index in range(parsed.network.num_inputs)]
    dynamic = [tensor.name for tensor in tensors if tensor.name in values or -1 in tuple(tensor.shape)]
    for ranges in profiles if dynamic else ():
        profile = parsed.builder.create_optimization_profile()
        try:
            for name in dynamic:
                give = profile.set_shape_input if name in values else profile.set_shape
                give(name, ranges[name].min, ranges[name].opt, ranges[name].max)
            is_taken = config.add_optimization_profile(profile) >= 0
        except (ValueError, RuntimeError) as error:
            parsed.errors.add(None, str(error))
            is_taken = False
        if not is_taken:
            raise ModelLoadFailed(
                f"TensorRT {parsed.module.__version__} refuses an optimization profile ({ranges_text([ranges])}): "
                f"{parsed.errors.take()}; correct that [[profile]], or leave it to be derived from [buckets]"
            )

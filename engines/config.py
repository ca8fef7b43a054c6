"""The builder's configuration: what the command line says, else the card, else a default that is stated here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.precision import Precision
from engines.request import HARDWARE_COMPATIBILITIES, BuildOptions
from service.cards import ModelCard
from service.errors import ModelLoadFailed

WORKSPACE_SHARE = 0.5
"""Of the free device memory: a layer's scratch may take half, what is left is for weights and for timing."""

_EXTERNAL_SOURCES = ("CUBLAS", "CUBLAS_LT", "CUDNN")
_HARDWARE_LEVELS = {"ampere+": "AMPERE_PLUS", "same-compute-capability": "SAME_COMPUTE_CAPABILITY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How a plan is built, all decided.

    Attributes:
        optimization_level: 0-5, or None for TensorRT's own.
        workspace_bytes: most scratch memory of one layer.
        hardware_compatibility: one of `HARDWARE_COMPATIBILITIES`.
        is_version_compatible: whether newer versions of TensorRT shall run the plan.
        is_weak_typing_allowed: whether TensorRT may lower the precision of a model in FP32.
    """

    optimization_level: int | None
    workspace_bytes: int
    hardware_compatibility: str
    is_version_compatible: bool
    is_weak_typing_allowed: bool


def decide(options: BuildOptions, card: ModelCard, free_bytes: int) -> BuildSettings:
    """Joins options and card; an option wins.

    Raises:
        ModelLoadFailed: the hardware compatibility is none that trtexec knows.
    """
    build = card.build
    compatibility = options.hardware_compatibility or build.hardware_compatibility
    if compatibility not in HARDWARE_COMPATIBILITIES:
        raise ModelLoadFailed(
            f"hardware compatibility '{compatibility}' is unknown, allowed are {', '.join(HARDWARE_COMPATIBILITIES)}"
        )
    return BuildSettings(
        optimization_level=_first(options.optimization_level, build.optimization_level),
        workspace_bytes=_first(options.workspace_bytes, build.workspace_bytes) or int(free_bytes * WORKSPACE_SHARE),
        hardware_compatibility=compatibility,
        is_version_compatible=bool(_first(options.is_version_compatible, build.is_version_compatible)),
        is_weak_typing_allowed=bool(_first(options.is_weak_typing_allowed, build.is_weak_typing_allowed)),
    )


def configure(module: Any, config: Any, settings: BuildSettings, precision: Precision) -> None:
    """Sets everything but profiles, timing cache and progress.

    TF32 stays at TensorRT's default, on: a plan of an FP32 model computes as its users know it.

    Args:
        module: TensorRT.
        config: a fresh `IBuilderConfig`.
        settings: what was decided.
        precision: the typing; its flags are set.

    Raises:
        ModelLoadFailed: this TensorRT does not have what is asked for.
    """
    config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    config.max_aux_streams = 0  # one stream: the least memory, and what one lane's graph can hold
    config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    for flag in precision.flags:
        config.set_flag(getattr(module.BuilderFlag, flag))
    _switch_external_sources_off(module, config)
    _share_profiles(module, config)
    _make_compatible(module, config, settings)


def _switch_external_sources_off(module: Any, config: Any) -> None:
    """TensorRT's own kernels do without cuBLAS and cuDNN, which a serving image then need not hold."""
    sources = config.get_tactic_sources()
    for name in _EXTERNAL_SOURCES:
        if hasattr(module.TacticSource, name):
            sources &= ~(1 << int(getattr(module.TacticSource, name)))
    config.set_tactic_sources(sources)


def _share_profiles(module: Any, config: Any) -> None:
    """Lets several contexts use one profile, which TensorRT 8.6 must be asked for and later versions always allow."""
    feature = getattr(module.PreviewFeature, "PROFILE_SHARING_0806", None)
    if feature is not None and not config.get_preview_feature(feature):
        config.set_preview_feature(feature, True)


def _make_compatible(module: Any, config: Any, settings: BuildSettings) -> None:
    if settings.is_version_compatible:
        config.set_flag(module.BuilderFlag.VERSION_COMPATIBLE)
    if settings.hardware_compatibility == "none":
        return
    name = _HARDWARE_LEVELS[settings.hardware_compatibility]
    levels = getattr(module, "HardwareCompatibilityLevel", None)
    if not hasattr(levels, name):
        raise ModelLoadFailed(
            f"TensorRT {module.__version__} cannot build for hardware compatibility "
            f"'{settings.hardware_compatibility}'; build with a newer one, or build on every kind of GPU that serves"
        )
    config.hardware_compatibility_level = getattr(levels, name)


def _first(option: Any, default: Any) -> Any:
    return default if option is None else option

"""The enums of building in the TensorRT double: which members a generation has, with the numbers that it gives them."""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace
from typing import Any

_FLAGS_8 = ("FP16", "INT8", "DEBUG", "GPU_FALLBACK", "STRICT_TYPES", "REFIT", "DISABLE_TIMING_CACHE", "TF32")
_FLAGS_11 = ("DEBUG", "GPU_FALLBACK", "REFIT", "DISABLE_TIMING_CACHE", "EDITABLE_TIMING_CACHE", "TF32")

_BUILDER_FLAGS = {
    "8.6": (*_FLAGS_8, "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "FP8"),
    "10": (*_FLAGS_8, "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "FP8", "BF16", "STRIP_PLAN", "INT4"),
    "11": (*_FLAGS_11, "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "STRIP_PLAN"),
}
_NETWORK_FLAGS = {
    "8.6": ("EXPLICIT_BATCH", "EXPLICIT_PRECISION"),
    "10": ("EXPLICIT_BATCH", "STRONGLY_TYPED"),
    "11": ("STRONGLY_TYPED", "PREFER_JIT_PYTHON_PLUGINS", "PREFER_AOT_PYTHON_PLUGINS"),
}
_TACTIC_SOURCES = {
    "8.6": ("CUBLAS", "CUBLAS_LT", "CUDNN", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"),
    "10": ("CUBLAS", "CUBLAS_LT", "CUDNN", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"),
    "11": ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"),
}
_PREVIEW = {
    "8.6": ("FASTER_DYNAMIC_SHAPES_0805", "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805", "PROFILE_SHARING_0806"),
    "10": ("PROFILE_SHARING_0806", "ALIASED_PLUGIN_IO_10_03"),
    "11": ("ALIASED_PLUGIN_IO_10_03", "RUNTIME_ACTIVATION_RESIZE_10_10"),
}
_HARDWARE = {
    "8.6": ("NONE", "AMPERE_PLUS"),
    "10.0": ("NONE", "AMPERE_PLUS"),
    "10": ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"),
    "11": ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"),
}

PRECISION_FLAGS = {"HALF": "FP16", "BF16": "BF16", "INT8": "INT8", "FP8": "FP8"}
"""The flag that lets a weakly typed network use a type."""


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


def _enum(name: str, members: tuple[str, ...]) -> Any:
    return IntEnum(name, {member: number for number, member in enumerate(members)})  # type: ignore[misc]


def builder_enums(generation: str) -> SimpleNamespace:
    """The enums as a generation has them."""
    family = generation if generation == "8.6" else generation.partition(".")[0]
    return SimpleNamespace(
        BuilderFlag=_enum("BuilderFlag", _BUILDER_FLAGS[family]),
        NetworkDefinitionCreationFlag=_enum("NetworkDefinitionCreationFlag", _NETWORK_FLAGS[family]),
        TacticSource=_enum("TacticSource", _TACTIC_SOURCES[family]),
        PreviewFeature=_enum("PreviewFeature", _PREVIEW[family]),
        HardwareCompatibilityLevel=_enum("HardwareCompatibilityLevel", _HARDWARE[generation]),
        OnnxParserFlag=_enum("OnnxParserFlag", ("NATIVE_INSTANCENORM",)),
        MemoryPoolType=_enum("MemoryPoolType", ("WORKSPACE", "DLA_MANAGED_SRAM", "TACTIC_DRAM")),
        ProfilingVerbosity=_enum("ProfilingVerbosity", ("LAYER_NAMES_ONLY", "DETAILED", "NONE")),
    )

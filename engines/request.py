"""What a build is asked for, as the parent process writes it and the child that builds reads it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from service.cards import HardwareCompatibility

HARDWARE_COMPATIBILITIES: tuple[str, ...] = get_args(HardwareCompatibility)
"""What may be asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What the command line says of a build; None leaves the choice to the card, and then to the builder.

    Attributes:
        optimization_level: 0 (quickest build) to 5 (longest search), trtexec's `--builderOptimizationLevel`.
        workspace_bytes: most scratch memory that one layer may use; None takes a share of what is free.
        timing_cache: folder for timing caches, one file per GPU, TensorRT and CUDA; None keeps none.
        hardware_compatibility: one of `HARDWARE_COMPATIBILITIES`.
        is_version_compatible: whether newer versions of TensorRT shall run the plan.
        device: ordinal of the GPU to build on and for.
        is_weak_typing_allowed: whether TensorRT may lower the precision of a model in FP32 (8.6 and 10 can).
    """

    optimization_level: int | None = None
    workspace_bytes: int | None = None
    timing_cache: Path | None = None
    hardware_compatibility: str | None = None
    is_version_compatible: bool | None = None
    device: int | None = None
    is_weak_typing_allowed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One plan to build.

    Attributes:
        model_folder: the model's folder in a repository; its name is the model's.
        version: the version to build, or "" for the highest; it must hold `model.onnx`.
        plan_path: where the plan goes; its manifest goes beside it.
        options: how.
    """

    model_folder: Path
    version: str
    plan_path: Path
    options: BuildOptions = field(default_factory=BuildOptions)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> BuildRequest:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is no request; the message says why.
        """
        try:
            content = json.loads(text)
            return cls(
                model_folder=Path(content["model_folder"]),
                version=str(content["version"]),
                plan_path=Path(content["plan_path"]),
                options=_options(content["options"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no build request ({error!r}); write what BuildRequest.to_json gives") from error


def _options(content: dict[str, Any]) -> BuildOptions:
    unknown = set(content) - {each.name for each in fields(BuildOptions)}
    if unknown:
        raise ValueError(f"unknown options {sorted(unknown)}")
    cache = content.get("timing_cache")
    return BuildOptions(**{**content, "timing_cache": None if cache is None else Path(cache)})

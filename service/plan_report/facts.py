"""What is known of a plan; frozen, gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.cards import ShapeRange
from service.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold if this machine is to run the plan.

    Attributes:
        subject: what was looked at.
        is_passed: whether it holds; None where it could not be found out here.
        words: what was found, and how to mend it where it does not hold.
    """

    subject: str
    is_passed: bool | None
    words: str


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer of the engine.

    Attributes:
        name: TensorRT's name for it, made of those of the ONNX nodes that it fuses.
        kind: TensorRT's word for it; empty where the engine was built to keep names alone.
        profile: the optimization profile that it belongs to.
        precision: such as `FP16`, or `FP32→FP16` where it converts; empty if it is not known.
        inputs: shapes, such as `8x3x224x224`; -1 stands for what was not set.
        outputs: likewise.
        tactic: the kernel's name, or TensorRT's number for it.
    """

    name: str
    kind: str
    profile: int
    precision: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tactic: str


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a GPU and TensorRT tell of the plan once it is deserialised.

    Attributes:
        inputs: in the engine's order.
        outputs: likewise.
        profiles: the shapes that it allows, by input.
        scratch_bytes: device memory of a context while it runs, beside its tensors, by profile.
        layers: in the order of execution; None where the installed TensorRT has no inspector.
        fixed_inputs: by name, the values of inputs that the profiles fix, so that clients do not send them.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    profiles: tuple[Mapping[str, ShapeRange], ...]
    scratch_bytes: tuple[int, ...]
    layers: tuple[LayerRow, ...] | None
    fixed_inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """A plan as found here.

    Attributes:
        path: as it was given.
        plan_bytes: its size.
        sha256: its digest, in lower-case hexadecimal.
        product: what built it: `TensorRT` or `TensorRT-RTX`.
        version: that one's version.
        manifest: all that lies beside it, as the builder wrote it; None without a readable one.
        checks: in the order of a model's loading; later ones are left out after one that failed.
        engine: what the GPU told; None where it was not asked, or refused.
    """

    path: str
    plan_bytes: int
    sha256: str
    product: str
    version: str
    manifest: Mapping[str, Any] | None
    checks: tuple[Check, ...]
    engine: EngineFacts | None = None

    @property
    def is_runnable(self) -> bool | None:
        """Whether this machine can run the plan; None if nothing speaks against it, but not all could be checked."""
        results = [check.is_passed for check in self.checks]
        return False if False in results else None if None in results else True

"""What came of a build: the plan's figures, and how far it agrees with the model that it was built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from service.cards import ShapeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAccuracy:
    """How one bucket agrees with ONNX Runtime in FP32: the worst over its rows and outputs.

    Attributes:
        bucket: the bucket's label, such as `8x128`.
        profile: index of the profile that runs it.
        output: the output that agrees least.
        cosine: its cosine similarity, 1 for equal directions.
        largest_difference: largest absolute difference of any element.
    """

    bucket: str
    profile: int
    output: str
    cosine: float
    largest_difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyReport:
    """The accuracy check of a build.

    Attributes:
        min_cosine: the least similarity that the card allows.
        buckets: what was compared; empty where nothing was.
        skipped: why nothing, or not everything, was compared; empty where all was.
    """

    min_cosine: float
    buckets: tuple[BucketAccuracy, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """A finished build.

    Attributes:
        plan_path: the plan.
        plan_bytes: its size.
        build_s: seconds that TensorRT's builder took.
        precision: what it was built with, in words, such as `fp16 (weakly typed)`.
        profiles: the profiles, each the ranges of its inputs.
        layer_count: layers of the engine; None where TensorRT has no inspector.
        layer_precisions: layers by the type of what they compute; empty where the inspector does not say.
        scratch_bytes: scratch memory of a context, by profile.
        accuracy: the accuracy check; None where the caller wanted none.
    """

    plan_path: Path
    plan_bytes: int
    build_s: float
    precision: str
    profiles: tuple[Mapping[str, ShapeRange], ...]
    layer_count: int | None
    layer_precisions: Mapping[str, int]
    scratch_bytes: tuple[int, ...]
    accuracy: AccuracyReport | None

    def to_content(self) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {
            **{name: getattr(self, name) for name in ("plan_bytes", "build_s", "precision", "layer_count")},
            "plan_path": str(self.plan_path),
            "profiles": [{name: asdict(shapes) for name, shapes in profile.items()} for profile in self.profiles],
            "layer_precisions": dict(self.layer_precisions),
            "scratch_bytes": list(self.scratch_bytes),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> BuildReport:
        """Reads what `to_content` gave, after a way through JSON.

        Raises:
            KeyError: a part is missing.
            TypeError: a part is of another kind.
        """
        return cls(
            **{name: content[name] for name in ("plan_bytes", "build_s", "precision", "layer_count")},
            plan_path=Path(content["plan_path"]),
            profiles=tuple(
                {name: ShapeRange(*(tuple(shapes[key]) for key in ("min", "opt", "max"))) for name, shapes in p.items()}
                for p in content["profiles"]
            ),
            layer_precisions=content["layer_precisions"],
            scratch_bytes=tuple(content["scratch_bytes"]),
            accuracy=None if content["accuracy"] is None else _accuracy(content["accuracy"]),
        )


def _accuracy(content: Mapping[str, Any]) -> AccuracyReport:
    buckets = tuple(BucketAccuracy(**bucket) for bucket in content["buckets"])
    return AccuracyReport(min_cosine=content["min_cosine"], buckets=buckets, skipped=content["skipped"])

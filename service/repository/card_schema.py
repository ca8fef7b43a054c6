"""The keys of `model.toml`: types, bounds, defaults and descriptions, each said once.

`docs/model-card.md` is generated from the descriptions here, the defaults come from `service.cards`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from service.cards import (
    BatchingCard,
    BuildCard,
    Completion,
    HardwareCompatibility,
    LanesCard,
    PrecisionCard,
)
from service.repository.card_task_schema import (
    DetectSection,
    Extent,
    OcrSection,
    PoolingSection,
    PreprocessSection,
    Section,
    TextSection,
)
from service.tensors import BATCH_DIM
from service.units import NS_PER_MS

TASKS = frozenset({"tensor", "classify", "detect", "embed", "ocr"})
"""What `/predict` can make of a model."""

MAX_NAME_LENGTH = 128

MAX_THREADS = 1024
"""Of all lanes of a model: many more, and the process can no longer end the threads that it began."""

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_BATCHING = BatchingCard()
_LANES = LanesCard()
_PRECISION = PrecisionCard()
_BUILD = BuildCard()


def name_problem(name: str) -> str | None:
    """Why `name` cannot be a model's name, or None if it can."""
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    if not MODEL_NAME.fullmatch(name):
        return "must start with a letter or digit and go on with letters, digits, '.', '_' or '-' (ASCII)"
    return None


class BatchingSection(Section):
    """How requests queue and join."""

    max_batch_size: int | None = Field(
        _BATCHING.max_batch_size,
        ge=0,
        le=65_536,
        description="Rows of the largest batch. 0 says that the leading dimension is no batch dimension. Left out: "
        "the largest of `[buckets] batch` or of the profiles, else 32, if every tensor's leading dimension is dynamic.",
        examples=[128],
    )
    max_queue_delay_ms: float = Field(
        _BATCHING.max_queue_delay_ns / NS_PER_MS,
        ge=0,
        le=60_000,
        description="How long a batch that is not full may wait while a lane is idle, in milliseconds. "
        "0 never lets a lane idle while work waits.",
        examples=[0.5],
    )
    max_queued_requests: int = Field(
        _BATCHING.max_queued_requests,
        ge=1,
        description="Requests in the queue above which new ones are refused at once.",
        examples=[256],
    )
    max_queued_bytes: int = Field(
        _BATCHING.max_queued_bytes,
        ge=1,
        description="Input bytes in the queue above which new requests are refused at once.",
        examples=[268_435_456],
    )
    default_timeout_ms: float = Field(
        _BATCHING.default_timeout_ns / NS_PER_MS,
        ge=0.001,
        le=86_400_000,
        description="Time that a request may spend in the queue unless it asks for less, in milliseconds.",
        examples=[2_000],
    )
    priority_levels: int = Field(
        _BATCHING.priority_levels,
        ge=1,
        le=100,
        description="Priorities from 1 (most urgent) to this; a request that names none gets the middle one.",
        examples=[3],
    )


class LanesSection(Section):
    """How many batches run at once, and where."""

    count: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        _LANES.count or "auto",
        description='Lanes: batches that run at once. `"auto"` leaves the choice to the backend.',
        examples=[2],
    )
    threads_per_lane: int | None = Field(
        _LANES.threads_per_lane,
        ge=1,
        le=256,
        description="Threads of one ONNX Runtime lane. Left out: the model's lanes divide `INFERLANE_CPU_THREADS`, "
        "by default the cores of the server's process.",
        examples=[4],
    )
    device: int = Field(
        _LANES.device,
        ge=0,
        description="Ordinal of the GPU that TensorRT lanes run on; ONNX Runtime runs on the CPU.",
        examples=[1],
    )
    graph_memory_bytes: int | None = Field(
        _LANES.graph_memory_bytes,
        ge=0,
        description="Device memory that the CUDA Graphs of one TensorRT lane may take. Buckets beyond it run without a "
        "graph, the largest first, for they gain least by one. Left out: a tenth of what is free when it is made.",
        examples=[268_435_456],
    )
    completion: Completion = Field(
        _LANES.completion,
        strict=False,
        description="How a TensorRT lane waits for its GPU. `spin` learns of a batch's end some microseconds earlier "
        "and keeps a core busy for each lane.",
        examples=["spin"],
    )

    @model_validator(mode="after")
    def _threads_that_a_process_can_have(self) -> LanesSection:
        if isinstance(self.count, int) and self.count * (self.threads_per_lane or 1) > MAX_THREADS:
            raise ValueError(
                f"count = {self.count} lanes with threads_per_lane = {self.threads_per_lane} are "
                f"{self.count * (self.threads_per_lane or 1)} threads, at most {MAX_THREADS} are allowed; lower either"
            )
        return self


class PrecisionSection(Section):
    """What an engine is built with. ONNX Runtime serves the model as it is, and warns that these keys do nothing."""

    mode: Literal["as-is", "fp16", "bf16", "int8", "fp8"] = Field(
        "as-is", description="Precision of the built engine.", examples=["fp16"]
    )
    min_cosine: float = Field(
        _PRECISION.min_cosine,
        gt=0,
        le=1,
        description="Least cosine similarity of every output with ONNX Runtime FP32, per bucket; "
        "below it the build fails.",
        examples=[0.9995],
    )


class BuildSection(Section):
    """How `inferlane build` makes a plan of the model; its command line wins over these keys."""

    optimization_level: int | None = Field(
        _BUILD.optimization_level,
        ge=0,
        le=5,
        description="TensorRT's search for fast kernels, from 0 (quickest build) to 5 (longest search). "
        "Left out: TensorRT's own default, 3.",
        examples=[4],
    )
    workspace_bytes: int | None = Field(
        _BUILD.workspace_bytes,
        ge=1,
        description="Most scratch memory that one layer may use. Left out: half of the GPU memory that is free when "
        "the build begins.",
        examples=[4_294_967_296],
    )
    hardware_compatibility: HardwareCompatibility = Field(
        "none",
        description="On which other GPUs the plan may run: `ampere+` on any from Ampere on, "
        "`same-compute-capability` (TensorRT 10.9 and later) on others of the same; both cost speed.",
        examples=["same-compute-capability"],
    )
    version_compatible: bool = Field(
        _BUILD.is_version_compatible,
        description="Newer versions of TensorRT, and the lean runtime, may run the plan. The plan then holds code for "
        "the CPU: serve none that comes from strangers.",
        examples=[True],
    )
    weak_typing: bool = Field(
        _BUILD.is_weak_typing_allowed,
        description="TensorRT 8.6 and 10 may lower the precision of an FP32 model to `precision.mode` by themselves. "
        "`false`, and from TensorRT 11 on always: the model must carry that precision.",
        examples=[False],
    )


class ShapeRangeSection(Section):
    """Minimum, optimum and maximum shape of one input."""

    min: list[Extent] = Field(description="Smallest shape.", examples=[[1, 3, 224, 224]])
    opt: list[Extent] = Field(description="Shape that the engine is tuned for.", examples=[[8, 3, 224, 224]])
    max: list[Extent] = Field(description="Largest shape.", examples=[[32, 3, 224, 224]])

    @model_validator(mode="after")
    def _ascending(self) -> ShapeRangeSection:
        if not len(self.min) == len(self.opt) == len(self.max):
            raise ValueError(
                "min, opt and max must have one rank, "
                f"got {len(self.min)}, {len(self.opt)} and {len(self.max)} dimensions"
            )
        for axis, (low, best, high) in enumerate(zip(self.min, self.opt, self.max, strict=True)):
            if not low <= best <= high:
                raise ValueError(
                    f"min <= opt <= max must hold per dimension, dimension {axis} has {low}, {best}, {high}"
                )
        return self


class CardFile(Section):
    """The top level of `model.toml`; its keys stand before the first table."""

    name: str | None = Field(
        None,
        description="The model's name in URLs; it must be the folder's, which is the default.",
        examples=["resnet50"],
    )
    task: str = Field(
        "tensor",
        description=f"What `/predict` makes of the model, one of {', '.join(f'`{task}`' for task in sorted(TASKS))}; "
        "`tensor` offers raw tensors only.",
        examples=["classify"],
    )
    backend: Literal["auto", "onnxruntime", "tensorrt"] = Field(
        "auto",
        description="What runs the model. `auto` is TensorRT where this machine runs it and the version has a plan, or "
        "one can be built from its ONNX model; else ONNX Runtime.",
        examples=["onnxruntime"],
    )
    kernels: Literal["auto", "off"] = Field(
        "auto",
        description="Whether the task's CUDA kernels run before and after a TensorRT engine. `auto` runs them where "
        "the task has some for this model and this machine can compile them; `off` leaves their work to the CPU, and "
        "the fills in CUDA Graphs as TensorRT asked for them.",
        examples=["off"],
    )
    labels: str | list[str] = Field(
        [],
        description="Class names by index: a list, or the name of a UTF-8 file inside the model's folder, one name "
        "a line. Names keep their spaces.",
        examples=["labels.txt", ["cat", "dog"]],
    )
    dims: dict[str, list[Extent | str]] = Field(
        {},
        description="Tensor → its dimensions, each a number or a name; names the dynamic dimensions of a model whose "
        f'own names say nothing. `"{BATCH_DIM}"` stands for the rows and can only come first.',
        examples=[{"x": ["batch", 3, "height", "width"]}],
    )
    buckets: dict[str, list[Extent]] = Field(
        {},
        description=f"Dynamic dimension (`{BATCH_DIM}` among them) → its padded sizes, ascending. Left out: derived "
        "from the profiles; a dimension that neither names is served at its exact size.",
        examples=[{"batch": [1, 2, 4, 8], "width": [160, 320]}],
    )
    padding: dict[str, float] = Field(
        {},
        description="Input → the value that padding in rows and dimensions gets; 0 for inputs not named.",
        examples=[{"token_type_ids": 1}],
    )
    profile: list[dict[str, ShapeRangeSection]] = Field(
        [],
        description="Optimization profiles, a `[[profile]]` table each: input → its `min`, `opt` and `max` shape.",
        examples=[{"images": {"min": [1, 3, 224, 224], "opt": [8, 3, 224, 224], "max": [32, 3, 224, 224]}}],
    )
    batching: BatchingSection = BatchingSection()
    lanes: LanesSection = LanesSection()
    precision: PrecisionSection = PrecisionSection()
    build: BuildSection = BuildSection()
    preprocess: PreprocessSection = PreprocessSection()
    text: TextSection = TextSection()
    pooling: PoolingSection = PoolingSection()
    detect: DetectSection = DetectSection()
    ocr: OcrSection = OcrSection()

    @model_validator(mode="after")
    def _composed_of_something(self) -> CardFile:
        if self.task == "ocr" and not (self.ocr.detector and self.ocr.recognizer):
            raise ValueError(
                'task = \'ocr\' needs an [ocr] table that names its models: detector = "..." and recognizer = "..."'
            )
        return self

    @field_validator("name")
    @classmethod
    def _name(cls, name: str | None) -> str | None:
        if name is not None and (problem := name_problem(name)):
            raise ValueError(problem)
        return name

    @field_validator("task")
    @classmethod
    def _task(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"must be one of {sorted(TASKS)}")
        return task

    @field_validator("dims")
    @classmethod
    def _dims(cls, dims: dict[str, list[int | str]]) -> dict[str, list[int | str]]:
        for tensor, names in dims.items():
            if "" in names:
                raise ValueError(f"{tensor}: the name of a dimension cannot be empty")
            if BATCH_DIM in names[1:]:
                raise ValueError(f"{tensor}: '{BATCH_DIM}' can only be the first dimension; give this one another name")
        return dims

    @field_validator("buckets")
    @classmethod
    def _buckets(cls, buckets: dict[str, list[int]]) -> dict[str, list[int]]:
        for name, sizes in buckets.items():
            if not _is_ascending(sizes):
                raise ValueError(f"{name}: sizes must be given, ascending and without repeats, got {sizes}")
        return buckets

    @field_validator("profile")
    @classmethod
    def _profile(cls, profiles: list[dict[str, ShapeRangeSection]]) -> list[dict[str, ShapeRangeSection]]:
        for index, profile in enumerate(profiles):
            if not profile:
                raise ValueError(f"profile {index} names no input; give it one, or take its [[profile]] away")
        return profiles


def _is_ascending(sizes: Sequence[int]) -> bool:
    return bool(sizes) and all(low < high for low, high in itertools.pairwise(sizes))

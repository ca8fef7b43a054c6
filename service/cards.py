"""The model card as its owner wrote it: frozen, validated in itself, not yet held against the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Literal, TypeAlias

from service.tensors import Dim
from service.units import NS_PER_MS

CARD_FILE = "model.toml"
"""Name of the card in its model's folder."""


class Resize(Enum):
    """How an image of any size becomes the model's size."""

    STRETCH = "stretch"
    LETTERBOX = "letterbox"
    SHORTEST_SIDE_CROP = "shortest-side+crop"


class Interpolation(Enum):
    """Interpolation of the resize, named as OpenCV names it."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"
    AREA = "area"
    LANCZOS = "lanczos"


class Completion(Enum):
    """How a lane waits for its GPU."""

    BLOCK = "block"
    SPIN = "spin"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreprocessCard:
    """`[preprocess]`: how an image becomes the model's input.

    Attributes:
        resize: how the image meets the model's height and width.
        shortest_side: pixels that the shorter side is scaled to before the crop (`shortest-side+crop` alone).
        interpolation: of the resize.
        color: channel order that the model was trained on, `rgb` or `bgr`.
        scale: factor on the 0-255 values before mean and standard deviation.
        mean: per channel, subtracted after scaling, in the model's channel order.
        std: per channel, divided by, in the model's channel order.
        pad_value: 0-255 value of letterbox borders.
        device_image_pixels: most pixels, height times width, of an image that the GPU scales.
    """

    resize: Resize = Resize.STRETCH
    shortest_side: int | None = None
    interpolation: Interpolation = Interpolation.LINEAR
    color: str = "rgb"
    scale: float = 1.0 / 255.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    pad_value: int = 114
    device_image_pixels: int = 1920 * 1088


class Pooling(Enum):
    """How the vectors of a text's tokens become the one of the text."""

    MEAN = "mean"
    FIRST = "first"


class BoxLayout(Enum):
    """How a detector lays its candidates out; `auto` tells it from the output's shape."""

    AUTO = "auto"
    YOLOV5 = "yolov5"
    YOLOV8 = "yolov8"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCard:
    """`[text]`: how a text becomes tokens.

    Attributes:
        tokenizer: content of the tokenizer file; empty if the card names none.
        max_tokens: tokens of the longest row, special ones included; None takes the model's longest bucket.
        is_truncated: whether a longer text is cut, rather than refused.
    """

    tokenizer: bytes = field(default=b"", repr=False)
    max_tokens: int | None = None
    is_truncated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingCard:
    """`[pooling]`: how the model's output becomes one vector per text.

    Attributes:
        output: the output that holds the vectors; None for a model that has one output.
        mode: how the vectors of tokens are pooled; an output of one vector per text is taken as it is.
        is_normalized: whether vectors are scaled to length 1; None does so where vectors of tokens were pooled.
    """

    output: str | None = None
    mode: Pooling = Pooling.MEAN
    is_normalized: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectCard:
    """`[detect]`: which of a detector's candidates are answered.

    Attributes:
        layout: how the candidates lie in the output.
        score_threshold: least score, 0 to 1.
        iou_threshold: overlap (intersection over union) with a better box of its class above which a box is dropped.
        max_detections: most boxes of one image, the best first.
    """

    layout: BoxLayout = BoxLayout.AUTO
    score_threshold: float = 0.25
    iou_threshold: float = 0.45
    max_detections: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrCard:
    """`[ocr]`: which models find and read text, and what counts as text.

    Attributes:
        detector: name of the model that marks pixels of text.
        recognizer: name of the model that reads a line.
        pixel_threshold: probability from which on a pixel is text.
        box_threshold: least mean probability of a line's pixels.
        unclip_ratio: how far a box reaches beyond the marked core: its area times this over its perimeter.
        text_threshold: least mean probability of a line's characters.
    """

    detector: str = ""
    recognizer: str = ""
    pixel_threshold: float = 0.3
    box_threshold: float = 0.6
    unclip_ratio: float = 1.5
    text_threshold: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingCard:
    """`[batching]`: how requests queue and join.

    Attributes:
        max_batch_size: rows of the largest batch; 0 says that the leading dimension is no batch dimension;
            None lets the server decide (`DEFAULT_MAX_BATCH_SIZE` where every tensor's leading dimension is dynamic).
        max_queue_delay_ns: how long a batch that is not full may wait while a lane is idle.
        max_queued_requests: requests in the queue above which new ones are refused.
        max_queued_bytes: input bytes in the queue above which new requests are refused.
        default_timeout_ns: time a request may spend in the queue unless it asks for less.
        priority_levels: priorities 1 (most urgent) to this.
    """

    max_batch_size: int | None = None
    max_queue_delay_ns: int = 0
    max_queued_requests: int = 1024
    max_queued_bytes: int = 1 << 30
    default_timeout_ns: int = 10_000 * NS_PER_MS
    priority_levels: int = 2

    @property
    def default_priority(self) -> int:
        """The level of a request that names none: the middle one, the less urgent of two."""
        return self.priority_levels // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesCard:
    """`[lanes]`: how many batches run at once.

    Attributes:
        count: lanes, or None for the backend's own choice.
        threads_per_lane: intra-op threads of an ONNX Runtime lane; None divides the server's `cpu_threads`.
        device: GPU ordinal of TensorRT lanes.
        graph_memory_bytes: device memory that the CUDA Graphs of one TensorRT lane may take; None lets the lane decide.
        completion: how a TensorRT lane waits for the end of a batch.
    """

    count: int | None = None
    threads_per_lane: int | None = None
    device: int = 0
    graph_memory_bytes: int | None = None
    completion: Completion = Completion.BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionCard:
    """`[precision]`: what an engine is built with. ONNX Runtime serves the model as it is."""

    mode: str = "as-is"
    min_cosine: float = 0.999


HardwareCompatibility: TypeAlias = Literal["none", "ampere+", "same-compute-capability"]
"""On which other GPUs a plan may run, in trtexec's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCard:
    """`[build]`: how TensorRT's builder works, where the command line does not say.

    Attributes:
        optimization_level: 0 (quickest build) to 5 (longest search); None leaves it to TensorRT.
        workspace_bytes: most scratch memory that one layer may use; None takes a share of what is free.
        hardware_compatibility: on which other GPUs the plan may run.
        is_version_compatible: whether newer versions of TensorRT shall run the plan.
        is_weak_typing_allowed: whether TensorRT may lower the precision of a model in FP32 by itself.
    """

    optimization_level: int | None = None
    workspace_bytes: int | None = None
    hardware_compatibility: HardwareCompatibility = "none"
    is_version_compatible: bool = False
    is_weak_typing_allowed: bool = True


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """Minimum, optimum and maximum shape of one input in an optimization profile."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One `model.toml`, parsed and validated in itself; not yet held against the model.

    Attributes:
        name: the name in URLs.
        task: what `/predict` makes of the model; `tensor` offers raw tensors only.
        backend: `auto`, `onnxruntime` or `tensorrt`.
        kernels_enabled: whether the task's CUDA kernels run around a TensorRT engine, and others in its graphs, where
            there are any.
        labels: class names by index, for classification; empty if there are none.
        dims: per tensor its dimensions by name and extent, where the model's own names say nothing.
        bucket_sizes: padded sizes by dimension name (`batch` among them).
        pad_values: per input the value of padding in rows and dims; 0 unless named here.
        profiles: optimization profiles, each a mapping from input name to its shape range.
        batching, lanes, precision, build, preprocess, text, pooling, detect, ocr: its sections.
    """

    name: str
    task: str = "tensor"
    backend: str = "auto"
    kernels_enabled: bool = True
    labels: tuple[str, ...] = ()
    dims: Mapping[str, tuple[Dim, ...]] = field(default_factory=lambda: MappingProxyType({}))
    bucket_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    pad_values: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    profiles: tuple[Mapping[str, ShapeRange], ...] = ()
    batching: BatchingCard = BatchingCard()
    lanes: LanesCard = LanesCard()
    precision: PrecisionCard = PrecisionCard()
    build: BuildCard = BuildCard()
    preprocess: PreprocessCard = PreprocessCard()
    text: TextCard = TextCard()
    pooling: PoolingCard = PoolingCard()
    detect: DetectCard = DetectCard()
    ocr: OcrCard = OcrCard()

    @property
    def members(self) -> Mapping[str, str]:
        """By the card's key, the models of the repository that this one is composed of; empty if it has its own."""
        if self.task != "ocr":
            return MappingProxyType({})
        return MappingProxyType({"detector": self.ocr.detector, "recognizer": self.ocr.recognizer})

"""The keys of `model.toml` that say what media become and what a model's outputs mean: a section for each concern."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.cards import (
    BoxLayout,
    DetectCard,
    Interpolation,
    OcrCard,
    Pooling,
    PoolingCard,
    PreprocessCard,
    Resize,
    TextCard,
)

MAX_EXTENT = 2**31 - 1

MAX_DEVICE_IMAGE_PIXELS = 1 << 26
"""Of which one, at 3 bytes a pixel, still fits the 256 MiB that a lane has for the media of a batch."""

_PREPROCESS = PreprocessCard()
_TEXT = TextCard()
_POOLING = PoolingCard()
_DETECT = DetectCard()
_OCR = OcrCard()

Extent = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Channels = Annotated[list[float], Field(min_length=3, max_length=3)]


class Section(BaseModel):
    """A table of the card: no unknown keys, no conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class PreprocessSection(Section):
    """How an image becomes the model's input, for tasks that take media."""

    resize: Resize = Field(
        _PREPROCESS.resize,
        strict=False,
        description="How the image meets the model's height and width.",
        examples=["letterbox"],
    )
    shortest_side: Extent | None = Field(
        _PREPROCESS.shortest_side,
        description="Pixels that the shorter side is scaled to before the crop; "
        "required by, and only for, `shortest-side+crop`.",
        examples=[256],
    )
    interpolation: Interpolation = Field(
        _PREPROCESS.interpolation, strict=False, description="Interpolation of the resize.", examples=["cubic"]
    )
    color: Literal["rgb", "bgr"] = Field(
        "rgb",
        description="Channel order that the model was trained on.",
        examples=["bgr"],
    )
    scale: float = Field(
        _PREPROCESS.scale,
        gt=0,
        description="Factor on the 0-255 values, before mean and standard deviation.",
        examples=[1.0],
    )
    mean: Channels = Field(
        list(_PREPROCESS.mean),
        description="Subtracted per channel after scaling, in the model's channel order.",
        examples=[[0.485, 0.456, 0.406]],
    )
    std: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=3, max_length=3)] = Field(
        list(_PREPROCESS.std),
        description="Divided by per channel, in the model's channel order.",
        examples=[[0.229, 0.224, 0.225]],
    )
    pad_value: int = Field(
        _PREPROCESS.pad_value, ge=0, le=255, description="Value of letterbox borders, before scaling.", examples=[0]
    )
    device_image_pixels: int = Field(
        _PREPROCESS.device_image_pixels,
        ge=1,
        le=MAX_DEVICE_IMAGE_PIXELS,
        description="Most pixels, height times width, of an image that the task's kernels scale on a GPU; larger ones "
        "are scaled on the host. Every row of a batch has room for so many, and batches that exceed "
        "256 MiB of it are not formed there.",
        examples=[8_294_400],
    )

    @model_validator(mode="after")
    def _shortest_side_where_it_means_something(self) -> PreprocessSection:
        crops = self.resize is Resize.SHORTEST_SIDE_CROP
        if crops and self.shortest_side is None:
            raise ValueError("resize = 'shortest-side+crop' needs shortest_side, for example shortest_side = 256")
        if not crops and self.shortest_side is not None:
            raise ValueError(
                f"shortest_side means nothing with resize = '{self.resize.value}'; "
                "leave it out, or set resize = 'shortest-side+crop'"
            )
        return self


class TextSection(Section):
    """How a text becomes tokens, for task `embed`. `[padding]` says what shorter rows are filled up with."""

    tokenizer: str = Field(
        "",
        description="Name of the tokenizer's file inside the model's folder, as the `tokenizers` library writes it.",
        examples=["tokenizer.json"],
    )
    max_tokens: Extent | None = Field(
        _TEXT.max_tokens,
        description="Tokens of the longest row, special ones included. Left out: the largest size of the model's "
        "sequence dimension in `[buckets]`.",
        examples=[128],
    )
    truncation: bool = Field(
        _TEXT.is_truncated, description="Whether a longer text is cut; `false` refuses it.", examples=[False]
    )


class PoolingSection(Section):
    """How a model's output becomes one vector per text, for task `embed`."""

    output: str | None = Field(
        _POOLING.output,
        description="The output that holds the vectors, where the model has several.",
        examples=["last_hidden_state"],
    )
    mode: Pooling = Field(
        _POOLING.mode,
        strict=False,
        description="How the vectors of tokens become one: their mean, padding left out, or the first. An output of "
        "one vector per text is taken as it is.",
        examples=["first"],
    )
    normalize: bool | None = Field(
        _POOLING.is_normalized,
        description="Whether vectors are scaled to length 1. Left out: where vectors of tokens were pooled.",
        examples=[True],
    )


class DetectSection(Section):
    """Which of a detector's candidates are answered, for task `detect`; the query may ask for others."""

    layout: BoxLayout = Field(
        _DETECT.layout,
        strict=False,
        description="How the candidates lie in the output: `yolov5` as `[batch, candidates, 5 + classes]`, `yolov8` "
        "(v11 too) as `[batch, 4 + classes, candidates]`. `auto` tells it from the shape.",
        examples=["yolov8"],
    )
    score_threshold: float = Field(
        _DETECT.score_threshold, ge=0, le=1, description="Least score of a box.", examples=[0.4]
    )
    iou_threshold: float = Field(
        _DETECT.iou_threshold,
        ge=0,
        le=1,
        description="Overlap with a better box of the same class (intersection over union) above which a box is "
        "dropped.",
        examples=[0.6],
    )
    max_detections: int = Field(
        _DETECT.max_detections, ge=1, le=10_000, description="Most boxes of one image, the best first.", examples=[100]
    )


class OcrSection(Section):
    """Which models of the repository find and read text, for task `ocr`; and what counts as text."""

    detector: str = Field(
        _OCR.detector,
        description="Name of the model that marks where text stands: `[batch, 3, height, width]` in, the probability "
        "of text per pixel out.",
        examples=["ocr-det"],
    )
    recognizer: str = Field(
        _OCR.recognizer,
        description="Name of the model that reads a line: `[batch, 3, height, width]` in, CTC probabilities "
        "`[batch, steps, classes]` out, with a label per class.",
        examples=["ocr-rec"],
    )
    pixel_threshold: float = Field(
        _OCR.pixel_threshold, gt=0, le=1, description="Probability from which on a pixel is text.", examples=[0.2]
    )
    box_threshold: float = Field(
        _OCR.box_threshold, ge=0, le=1, description="Least mean probability of a line's pixels.", examples=[0.5]
    )
    unclip_ratio: float = Field(
        _OCR.unclip_ratio,
        ge=0,
        le=10,
        description="How far a line's box reaches beyond the core that the detector marks: on every side by the core's "
        "area times this over its perimeter.",
        examples=[1.8],
    )
    text_threshold: float = Field(
        _OCR.text_threshold, ge=0, le=1, description="Least mean probability of a line's characters.", examples=[0.3]
    )

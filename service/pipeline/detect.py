"""Task `detect`: images in, boxes with their classes and scores out, in pixels of each image as it came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from service.buckets import Form
from service.cards import BoxLayout
from service.errors import ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.answers import SCORE_DECIMALS, rounded_pixels
from service.pipeline.boxes import Boxes, decode_candidates, to_image, without_overlaps
from service.pipeline.frames import RawImage
from service.pipeline.images import ImageLoader, ImageSize, LoadedImages, create_image_loader
from service.pipeline.needs import SCORE_DTYPES, tensors_text
from service.pipeline.options import bounded_number, bounded_whole, check_names
from service.pipeline.preprocess import plan_resize
from service.pipeline.steps import Call, Outputs, Step, Steps
from service.tensors import HostArray, TensorSpec

MAX_DETECTIONS = 10_000

_COLUMNS = {BoxLayout.YOLOV5: 5, BoxLayout.YOLOV8: 4}
"""Numbers of a candidate before those of its classes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which boxes a request wants.

    Attributes:
        score_threshold: least score.
        iou_threshold: overlap above which the lesser of two boxes of a class is dropped.
        max_detections: most boxes of an image.
    """

    score_threshold: float
    iou_threshold: float
    max_detections: int


@dataclass(frozen=True, slots=True, eq=False)
class DetectTask:
    """`/predict` of a detector. Immutable, so all threads share it.

    Attributes:
        spec: the model.
        images: decodes, and preprocesses what the model's device does not.
        layout: how candidates lie in the output; not `auto`.
    """

    spec: ModelSpec
    images: ImageLoader
    layout: BoxLayout

    def check_options(self, options: Mapping[str, str]) -> None:
        """Accepts `score_threshold`, `iou_threshold` and `max_detections`, which the card has defaults for.

        Raises:
            InvalidInput: another option, or another value.
        """
        check_names(options, "detect", ("score_threshold", "iou_threshold", "max_detections"))
        self._limits(options)

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        """The images of a body as rows of a batch, then the boxes of each."""
        return self._steps(lambda as_media: self.images.load(body, content_type, as_media=as_media), options)

    def frame_steps(self, frame: RawImage, options: Mapping[str, str]) -> Steps:
        """The same of a frame as the one row."""
        return self._steps(lambda as_media: self.images.load_frame(frame, as_media=as_media), options)

    def _steps(self, load: Callable[[bool], LoadedImages], options: Mapping[str, str]) -> Steps:
        limits = self._limits(options)
        media = load(self._is_within_kernels(limits))
        outputs = yield Step(media.calls)
        found = media.in_order(map(partial(self._boxes, limits), media.calls, outputs))
        return {
            "model_name": self.spec.name,
            "model_version": self.spec.version,
            "results": [self._result(boxes, size) for boxes, size in zip(found, media.sizes, strict=True)],
        }

    def _is_within_kernels(self, limits: Limits) -> bool:
        """Whether the boxes that the form of media answers, by the card's thresholds, hold all that is wanted."""
        if self.spec.media is None:
            return False
        card, most = self.spec.card.detect, self.spec.media.outputs[1].dims[1]
        return (
            limits.score_threshold >= card.score_threshold
            and limits.iou_threshold == card.iou_threshold
            and isinstance(most, int)
            and limits.max_detections <= most
        )

    def _boxes(self, limits: Limits, call: Call, outputs: Outputs) -> list[Boxes]:
        """Per row of a call the wanted boxes on the model's canvas, best first.

        Raises:
            ExecutionFailed: scores or boxes are not numbers.
        """
        if call.form is Form.MEDIA:
            return [self._kept(limits, row) for row in zip(*outputs, strict=True)]
        return [self._decoded(limits, row) for row in outputs[0]]

    def _kept(self, limits: Limits, row: Outputs) -> Boxes:
        """Of the boxes that kernels have found in an image those that a request wants.

        A better box is never dropped for a lesser one: so what is left above a higher threshold, and the first few,
        are what the kernels had found with those limits.
        """
        counts, corners, scores, classes = row
        self._require_numbers(not counts[1])
        boxes = Boxes(corners.astype(np.float32), scores.astype(np.float32), classes.astype(np.int32))
        wanted = np.flatnonzero(boxes.scores[: int(counts[0])] >= np.float32(limits.score_threshold))
        return boxes.take(wanted[: limits.max_detections])

    def _decoded(self, limits: Limits, row: HostArray) -> Boxes:
        candidates = decode_candidates(row, self.layout, limits.score_threshold)
        self._require_numbers(bool(np.isfinite(candidates.scores).all() and np.isfinite(candidates.corners).all()))
        return without_overlaps(candidates, limits.iou_threshold, limits.max_detections)

    def _require_numbers(self, are_numbers: bool) -> None:
        if not are_numbers:
            raise ExecutionFailed(
                f"model '{self.spec.name}' answered with scores or boxes that are not numbers (NaN or infinite); "
                "check its precision and [preprocess] in its card"
            )

    def _result(self, boxes: Boxes, size: ImageSize) -> dict[str, object]:
        preprocessor = self.images.preprocessor
        plan = plan_resize(size.height, size.width, preprocessor.target, preprocessor.card)
        shown = to_image(boxes, plan, size)
        return {"height": size.height, "width": size.width, "detections": self._detections(shown)}

    def _detections(self, boxes: Boxes) -> list[dict[str, object]]:
        labels = self.spec.card.labels
        return [
            {
                "label": labels[index] if labels else str(index),
                "index": index,
                "score": round(score, SCORE_DECIMALS),
                "box": corners,
            }
            for index, score, corners in zip(
                boxes.classes.tolist(), boxes.scores.tolist(), rounded_pixels(boxes.corners), strict=True
            )
        ]

    def _limits(self, options: Mapping[str, str]) -> Limits:
        card = self.spec.card.detect
        return Limits(
            bounded_number(options, "score_threshold", card.score_threshold, 0, 1),
            bounded_number(options, "iou_threshold", card.iou_threshold, 0, 1),
            bounded_whole(options, "max_detections", card.max_detections, 1, MAX_DETECTIONS),
        )


def create_detect_task(spec: ModelSpec, *, max_image_pixels: int) -> DetectTask:
    """The task for a model, after checking that the model is a detector whose boxes can be read.

    Raises:
        ModelLoadFailed: the inputs, outputs, preprocessing or labels do not fit.
    """
    layout, classes = box_layout(spec)
    labels = spec.card.labels
    if labels and len(labels) != classes:
        raise ModelLoadFailed(
            f"model '{spec.name}': the label file has {len(labels)} labels, the model has {classes} classes as "
            f"{layout.value}; write one label a line, or set [detect] layout"
        )
    return DetectTask(spec, create_image_loader(spec, max_pixels=max_image_pixels), layout)


def box_layout(spec: ModelSpec) -> tuple[BoxLayout, int]:
    """How candidates lie, and how many classes they have.

    Raises:
        ModelLoadFailed: the model has not one output of candidates, or nothing says how they lie.
    """
    tensor = spec.outputs[0]
    layout = spec.card.detect.layout
    if len(spec.outputs) == 1 and tensor.dtype in SCORE_DTYPES and len(tensor.dims) == 3:
        layout = _recognized(tensor) if layout is BoxLayout.AUTO else layout
        if layout is not BoxLayout.AUTO:
            columns = tensor.dims[1 if layout is BoxLayout.YOLOV8 else 2]
            if isinstance(columns, int) and columns > _COLUMNS[layout]:
                return layout, columns - _COLUMNS[layout]
    found = tensors_text(spec.outputs)
    raise ModelLoadFailed(
        f"model '{spec.name}': task 'detect' needs exactly one output, [batch, candidates, 5 + classes] (yolov5) or "
        f"[batch, 4 + classes, candidates] (yolov8, v11), without non-maximum suppression; the model has {found}. "
        'Where the number of candidates is dynamic, [detect] layout says which; task = "tensor" serves any model'
    )


def _recognized(tensor: TensorSpec) -> BoxLayout:
    """There are always more candidates than numbers of one: the longer of the two dimensions counts candidates."""
    _, first, second = tensor.dims
    if isinstance(first, str) or isinstance(second, str):
        return BoxLayout.AUTO
    return BoxLayout.YOLOV8 if first < second else BoxLayout.YOLOV5

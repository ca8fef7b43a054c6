"""A detector's output to boxes: candidates, their scores, and which are left when overlapping ones are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from service.cards import BoxLayout
from service.pipeline.images import ImageSize
from service.pipeline.preprocess import ResizePlan
from service.tensors import HostArray

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int32]

MAX_CANDIDATES = 4096
"""Of one image that are compared with each other, the best first: the comparisons grow with the square of their number,
and no picture shows so many things."""


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of one image, in no order that is promised but where a function says so.

    Attributes:
        corners: FP32[boxes, 4]: left, top, right, bottom in pixels.
        scores: FP32[boxes], 0 to 1.
        classes: INT32[boxes].
    """

    corners: Floats
    scores: Floats
    classes: Indices

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, indices: npt.NDArray[np.intp]) -> Boxes:
        """Those boxes, in that order."""
        return Boxes(self.corners[indices], self.scores[indices], self.classes[indices])


def decode_candidates(row: HostArray, layout: BoxLayout, score_threshold: float) -> Boxes:
    """The candidates of one image that reach a score.

    A candidate is its centre x, centre y, width and height in pixels of the model's input, then for YOLOv5 the
    objectness, then a score per class. Its class is the best one; its score that class's, times the objectness in
    YOLOv5 (Ultralytics' YOLOv5 and YOLOv8, non-maximum suppression of both).

    Args:
        row: FP32, FP16 or FP64: [candidates, 5 + classes] for YOLOv5, [4 + classes, candidates] for YOLOv8.
        layout: which of the two.
        score_threshold: least score.

    Returns:
        The boxes; a score that is not a number is kept, for the caller to see.
    """
    values = row.astype(np.float32)
    if layout is BoxLayout.YOLOV8:
        boxes, class_scores = values[:4].T, values[4:]
        classes = class_scores.argmax(axis=0)
        scores = class_scores.max(axis=0)
    else:
        boxes, class_scores = values[:, :4], values[:, 5:]
        classes = class_scores.argmax(axis=1)
        scores = values[:, 4] * class_scores.max(axis=1)
    kept = np.flatnonzero(~(scores < score_threshold))
    centres, extents = boxes[kept, :2], boxes[kept, 2:]
    corners = np.concatenate([centres - extents / 2, centres + extents / 2], axis=1)
    return Boxes(corners, scores[kept], classes[kept].astype(np.int32))


def without_overlaps(boxes: Boxes, iou_threshold: float, limit: int) -> Boxes:
    """The best boxes, descending, none of which overlaps a better one of its class by more than `iou_threshold`.

    Args:
        boxes: with finite corners and scores.
        iou_threshold: intersection over union, 0 to 1.
        limit: most boxes.
    """
    if not len(boxes):
        return boxes
    boxes = boxes.take(np.argsort(-boxes.scores, kind="stable")[:MAX_CANDIDATES])
    corners = boxes.corners.astype(np.float64)
    # OpenCV keeps classes apart by moving each beyond the right edge of the one before: nothing may lie left of 0.
    corners -= corners.min(axis=0)[[0, 1, 0, 1]]
    rectangles = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    kept = cv2.dnn.NMSBoxesBatched(
        rectangles.tolist(), boxes.scores.tolist(), boxes.classes.tolist(), -1.0, iou_threshold
    )
    return boxes.take(np.sort(np.asarray(kept, np.intp))[:limit])


def to_image(boxes: Boxes, plan: ResizePlan, size: ImageSize) -> Boxes:
    """Boxes on the model's canvas as boxes on the image that was put there: the resize undone, cut at its edges.

    Args:
        boxes: in pixels of the model's input.
        plan: how the image became that.
        size: of the image.

    Returns:
        The boxes whose part on the image is not empty, in the same order.
    """
    source, scaled = plan.source, plan.scaled
    factor = np.array([source.width / scaled.width, source.height / scaled.height])
    moved = (boxes.corners.astype(np.float64).reshape(-1, 2, 2) - [scaled.left, scaled.top]) * factor
    moved += [source.left, source.top]
    corners = np.clip(moved, 0, [size.width, size.height]).reshape(-1, 4).astype(np.float32)
    is_there = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
    return Boxes(corners, boxes.scores, boxes.classes).take(np.flatnonzero(is_there))

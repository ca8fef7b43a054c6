"""What the kernels of `detect` must compute, in NumPy and FP32, step by step as the device does it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.cards import BoxLayout

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Boxes of one image, best first.

    Attributes:
        corners: FP32[boxes, 4]: left, top, right, bottom.
        scores: FP32[boxes].
        classes: INT32[boxes].
        strange: anchors whose score or box is not a number.
    """

    corners: Floats
    scores: Floats
    classes: npt.NDArray[np.int32]
    strange: int


def overlaps(one: Floats, others: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether intersection over union of a box with each of others is more than `threshold`; FP32[4], FP32[n, 4]."""
    top_left = np.maximum(one[:2], others[:, :2])
    bottom_right = np.minimum(one[2:], others[:, 2:])
    intersection = np.maximum(bottom_right - top_left, 0).prod(axis=1, dtype=np.float32)
    areas = np.maximum(others[:, 2:] - others[:, :2], 0).prod(axis=1, dtype=np.float32)
    area = np.maximum(one[2:] - one[:2], 0).prod(dtype=np.float32)
    covered: npt.NDArray[np.bool_] = intersection > np.float32(threshold) * (area + areas - intersection)
    return covered


def candidates(prediction: Floats, layout: BoxLayout, score_threshold: float) -> Found:
    """The anchors of one image that reach the threshold, best first, of equal scores the lower anchor first.

    Args:
        prediction: FP32[A, 5 + C] (YOLOv5) or FP32[4 + C, A] (YOLOv8).
        layout: which of the two.
        score_threshold: least score.
    """
    rows = prediction.T if layout is BoxLayout.YOLOV8 else prediction
    class_scores = rows[:, 4:] if layout is BoxLayout.YOLOV8 else rows[:, 5:]
    objectness = np.ones(len(rows), np.float32) if layout is BoxLayout.YOLOV8 else rows[:, 4]
    threshold = np.float32(score_threshold)
    with np.errstate(all="ignore"):
        scores = class_scores.max(axis=1) * objectness
        is_ignored = (scores < threshold) | ((objectness < threshold) & (layout is BoxLayout.YOLOV5))
        halves = rows[:, 2:4] / np.float32(2)
        corners = np.concatenate([rows[:, :2] - halves, rows[:, :2] + halves], axis=1)
    is_number = np.isfinite(scores) & np.isfinite(corners).all(axis=1)
    kept = np.flatnonzero(~is_ignored & is_number)
    order = kept[np.argsort(-scores[kept], kind="stable")]
    classes = class_scores[order].argmax(axis=1).astype(np.int32) if len(order) else np.zeros(0, np.int32)
    return Found(corners[order], scores[order], classes, int((~is_ignored & ~is_number).sum()))


def without_overlaps(found: Found, iou_threshold: float, limit: int, most_candidates: int) -> Found:
    """The best `limit` of the best `most_candidates` that no better kept box of their class overlaps too much."""
    count = min(len(found.scores), most_candidates)
    is_dropped = np.zeros(count, bool)
    kept: list[int] = []
    for better in range(count):
        if is_dropped[better] or len(kept) == limit:
            continue
        kept.append(better)
        same_class = found.classes[:count] == found.classes[better]
        is_dropped |= same_class & overlaps(found.corners[better], found.corners[:count], iou_threshold)
    return Found(found.corners[kept], found.scores[kept], found.classes[kept], found.strange)

"""Where text stands: from the probability of text per pixel to a rectangle, of any angle, for each line.

Differentiable binarization (Liao et al., "Real-time Scene Text Detection with Differentiable Binarization", AAAI 2020)
trains a detector to mark the shrunken core of a line, whose distance from the line's edge is area * ratio / perimeter
of the core; the rectangles here are grown back by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from service.cards import OcrCard

MAX_LINES = 1000
"""Of one image; beyond them the smallest specks are left out."""

_MIN_CORE = 3
_MIN_LINE = 5
"""Pixels of the shorter side, before and after growing, below which a mark is noise and no text."""


@dataclass(frozen=True, slots=True, eq=False)
class TextBox:
    """A line's rectangle.

    Attributes:
        corners: FP32[4, 2], x and y in pixels: top left, top right, bottom right, bottom left.
        score: mean probability of text in it, 0 to 1.
    """

    corners: npt.NDArray[np.float32]
    score: float


def find_text(probabilities: npt.NDArray[np.float32], card: OcrCard) -> list[TextBox]:
    """The lines on a probability map, in reading order.

    Args:
        probabilities: FP32[height, width] of text.
        card: the thresholds.
    """
    is_text = (probabilities > card.pixel_threshold).astype(np.uint8)
    contours, _ = cv2.findContours(is_text, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    largest = sorted(contours, key=cv2.contourArea, reverse=True)[:MAX_LINES]
    boxes = (_to_box(contour, probabilities, card) for contour in largest)
    return reading_order([box for box in boxes if box is not None])


def _to_box(contour: cv2.typing.MatLike, probabilities: npt.NDArray[np.float32], card: OcrCard) -> TextBox | None:
    centre, (width, height), angle = cv2.minAreaRect(contour)
    if min(width, height) < _MIN_CORE:
        return None
    score = _mean_inside(probabilities, cv2.boxPoints((centre, (width, height), angle)))
    if not score >= card.box_threshold:
        return None
    margin = card.unclip_ratio * width * height / (2 * (width + height))
    width, height = width + 2 * margin, height + 2 * margin
    if min(width, height) < _MIN_LINE:
        return None
    return TextBox(_from_top_left(cv2.boxPoints((centre, (width, height), angle))), score)


def _mean_inside(probabilities: npt.NDArray[np.float32], corners: cv2.typing.MatLike) -> float:
    """The mean over the pixels of a rectangle that lie on the map."""
    rows, columns = probabilities.shape
    low = np.clip(np.floor(corners.min(axis=0)).astype(np.intp), 0, [columns - 1, rows - 1])
    high = np.clip(np.ceil(corners.max(axis=0)).astype(np.intp), 0, [columns - 1, rows - 1])
    part = probabilities[low[1] : high[1] + 1, low[0] : high[0] + 1]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [np.round(corners - low).astype(np.int32)], [1])
    return cv2.mean(part, mask)[0]


def _from_top_left(corners: cv2.typing.MatLike) -> npt.NDArray[np.float32]:
    """The corners clockwise from the top left one: of the two to the left and the two to the right the upper first."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = (pair[np.argsort(pair[:, 1], kind="stable")] for pair in (by_x[:2], by_x[2:]))
    return np.array([left[0], right[0], right[1], left[1]], np.float32)


def reading_order(boxes: Sequence[TextBox]) -> list[TextBox]:
    """Boxes from top to bottom; those that stand side by side, from left to right.

    A box stands beside the one before it where their middles are no further apart than half the lower one's height.
    """
    rows: list[list[TextBox]] = []
    for box in sorted(boxes, key=_middle):
        if rows and _middle(box) - _middle(rows[-1][-1]) <= min(_height(box), _height(rows[-1][-1])) / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=_left)]


def _middle(box: TextBox) -> float:
    return float(box.corners[:, 1].mean())


def _height(box: TextBox) -> float:
    return float(np.ptp(box.corners[:, 1]))


def _left(box: TextBox) -> float:
    return float(box.corners[:, 0].min())


def scaled_back(boxes: Sequence[TextBox], factors: tuple[float, float], size: tuple[int, int]) -> Iterator[TextBox]:
    """Boxes of a scaled image on the image itself, cut at its edges.

    Args:
        boxes: of the scaled image.
        factors: pixels of the image per pixel of the scaled one, in x and y.
        size: width and height of the image.
    """
    for box in boxes:
        corners = np.clip(box.corners * np.array(factors), 0, size)
        yield TextBox(corners.astype(np.float32), box.score)

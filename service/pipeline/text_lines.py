"""A line of text on an image: cut out upright, and read from a recogniser's probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from service.pipeline.decode import RgbImage
from service.pipeline.text_boxes import TextBox
from service.tensors import HostArray

Corners = npt.NDArray[np.float32]

BLANK = 0
"""The class with which CTC (Graves et al., ICML 2006) parts equal neighbours; no character."""

MAX_WARPED = 16_384
"""Pixels of the longer side of what is warped as it is. OpenCV 4 warps no more than 32,766, to or from: the diagonal of
a square of this is shorter."""

_REACH = 2
"""Pixels around a point that cubic interpolation looks at."""

_UPRIGHT_FROM = 1.5
"""Height over width from which a line is taken to run downwards and is turned before it is read."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """What a line says.

    Attributes:
        text: its characters.
        score: mean probability of them, 0 to 1; 0 for no character, NaN if a probability is not a number.
    """

    text: str
    score: float


def cut_out(image: RgbImage, box: TextBox) -> RgbImage | None:
    """The line under a box, its four corners pulled into a rectangle; None where nothing of it is on the image.

    Args:
        image: uint8[H, W, 3] RGB.
        box: in pixels of the image.

    Returns:
        line: uint8[any height, any width, 3], a line that ran downwards turned by 90 degrees against the clock, one of
            more than `MAX_WARPED` pixels scaled down.
    """
    image, corners = _warpable(image, box.corners)
    top_left, top_right, bottom_right, bottom_left = corners
    width = round(max(np.linalg.norm(top_right - top_left), np.linalg.norm(bottom_right - bottom_left)))
    height = round(max(np.linalg.norm(bottom_left - top_left), np.linalg.norm(bottom_right - top_right)))
    if width < 1 or height < 1:
        return None
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    matrix = cv2.getPerspectiveTransform(corners, target)
    line = cv2.warpPerspective(image, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    if height >= _UPRIGHT_FROM * width:
        line = cv2.rotate(line, cv2.ROTATE_90_COUNTERCLOCKWISE)
    return np.asarray(line, np.uint8)


def _warpable(image: RgbImage, corners: Corners) -> tuple[RgbImage, Corners]:
    """The image, or of a too large one the part under the corners, scaled down if need be; and the corners on it."""
    if max(image.shape[:2]) <= MAX_WARPED:
        return image, corners
    low = np.maximum(np.floor(corners.min(axis=0)).astype(np.intp) - _REACH, 0)
    high = np.ceil(corners.max(axis=0)).astype(np.intp) + _REACH + 1
    part, moved = image[low[1] : high[1], low[0] : high[0]], corners - low
    size = np.array(part.shape[1::-1])
    if size.max() > MAX_WARPED:
        scaled = np.maximum(size * MAX_WARPED // size.max(), 1)
        part = np.asarray(cv2.resize(part, scaled.tolist(), interpolation=cv2.INTER_AREA), np.uint8)
        moved = moved * (scaled / size)
    return part, moved.astype(np.float32)


def read_ctc(probabilities: HostArray, labels: Sequence[str]) -> ReadLine:
    """The likeliest class of each step, equal neighbours merged and blanks dropped.

    Args:
        probabilities: FP32, FP16 or FP64 [steps, classes].
        labels: character of each class.
    """
    best = probabilities.argmax(axis=1)
    is_character = (best != BLANK) & (np.diff(best, prepend=BLANK) != 0)
    highest = probabilities.max(axis=1).astype(np.float64)
    if not np.isfinite(highest).all():
        return ReadLine("", np.nan)
    scores = highest[is_character]
    text = "".join(labels[index] for index in best[is_character])
    return ReadLine(text, float(scores.mean()) if len(scores) else 0.0)

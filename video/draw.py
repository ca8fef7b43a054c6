"""What a model said, drawn on the frame that it said it of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import cv2
import numpy as np

from video.errors import VideoError
from video.source import Image

_COLORS = ((60, 180, 75), (255, 130, 0), (0, 130, 255), (200, 60, 200), (0, 200, 200), (80, 80, 255))
"""BGR, by the index of a class."""

_FONT = cv2.FONT_HERSHEY_SIMPLEX

MAX_SHOWN = 120
"""Characters of an answer that is told because it cannot be drawn."""


def annotated(image: Image, answer: Mapping[str, Any]) -> Image:
    """A copy of the frame with boxes and their labels, the likeliest class, or lines of text where they stand.

    Args:
        image: uint8[height, width, 3] BGR.
        answer: the server's, of any task; a failed or dropped frame is copied as it is.

    Raises:
        VideoError: the answer is none that can be drawn.
    """
    drawn: Image = image.copy()
    try:
        _draw(drawn, answer)
    except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError, cv2.error) as error:
        raise VideoError(
            f"the server answered a frame with {str(answer)[:MAX_SHOWN]!r}, which cannot be drawn ({error!r}); "
            "is it an Inferlane server of this version?"
        ) from None
    return drawn


def _draw(drawn: Image, answer: Mapping[str, Any]) -> None:
    for result in answer.get("results", ()):
        for found in result.get("detections", ()):
            left, top, right, bottom = found["box"]
            corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
            _mark(drawn, corners, f"{found['label']} {found['score']:.2f}", found["index"])
        for line in result.get("lines", ()):
            _mark(drawn, line["box"], line["text"], 0)
        for rank, best in enumerate(result.get("predictions", ())):
            scale = _scale(drawn)
            place = (int(10 * scale), int(30 * scale * (rank + 1)))
            _write(drawn, f"{best['label']} {best['score']:.2f}", place, _color(best["index"]))


def _mark(drawn: Image, corners: Iterable[Iterable[float]], text: str, index: int) -> None:
    outline = np.asarray(list(corners), np.float64).round().astype(np.int32)
    thickness = max(1, round(2 * _scale(drawn)))
    cv2.polylines(drawn, [outline.reshape(-1, 1, 2)], isClosed=True, color=_color(index), thickness=thickness)
    left, top = outline.min(axis=0).tolist()
    _write(drawn, text, (left, max(top - 4, int(14 * _scale(drawn)))), _color(index))


def _write(drawn: Image, text: str, place: tuple[int, int], color: tuple[int, int, int]) -> None:
    """OpenCV's fonts have ASCII alone."""
    shown = text.encode("ascii", "replace").decode()
    size = 0.6 * _scale(drawn)
    for ink, thickness in (((0, 0, 0), 3), (color, 1)):
        cv2.putText(drawn, shown, place, _FONT, size, ink, max(1, round(thickness * _scale(drawn))), cv2.LINE_AA)


def _scale(drawn: Image) -> float:
    """Letters as large on any frame as they are on one of 720 lines."""
    return max(0.5, len(drawn) / 720)


def _color(index: int) -> tuple[int, int, int]:
    return _COLORS[index % len(_COLORS)]

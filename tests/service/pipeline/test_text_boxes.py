"""Lines of text on probability maps that are drawn by hand."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cards import OcrCard
from service.pipeline.text_boxes import MAX_LINES, TextBox, find_text, reading_order, scaled_back

SIDE = 200


def drawn(*cores: tuple[tuple[float, float], tuple[float, float], float], value: float = 0.9) -> np.ndarray:
    """A map with rotated rectangles of `value`: centre, size and angle in degrees of each."""
    host_map = np.zeros((SIDE, SIDE), np.float32)
    for core in cores:
        cv2.fillPoly(host_map, [np.round(cv2.boxPoints(core)).astype(np.int32)], value)
    return host_map


def box_at(left: float, top: float, width: float, height: float) -> TextBox:
    right, bottom = left + width, top + height
    return TextBox(np.float32([[left, top], [right, top], [right, bottom], [left, bottom]]), 1.0)


def test_a_core_is_grown_by_its_area_over_its_perimeter() -> None:
    (found,) = find_text(drawn(((100, 50), (80, 10), 0)), OcrCard(unclip_ratio=1.5))
    margin = 1.5 * 80 * 10 / 180
    expected = [
        (60 - margin, 45 - margin),
        (140 + margin, 45 - margin),
        (140 + margin, 55 + margin),
        (60 - margin, 55 + margin),
    ]
    np.testing.assert_allclose(found.corners, expected, atol=1)
    assert found.score == pytest.approx(0.9)


def test_without_growth_the_core_is_the_box() -> None:
    (found,) = find_text(drawn(((100, 50), (80, 10), 0)), OcrCard(unclip_ratio=0))
    np.testing.assert_allclose(found.corners, [(60, 45), (140, 45), (140, 55), (60, 55)], atol=0.1)


@pytest.mark.parametrize("angle", [-30, -10, 10, 30])
def test_a_slanted_line_has_a_slanted_box(angle: float) -> None:
    (found,) = find_text(drawn(((100, 100), (100, 12), angle)), OcrCard())
    top_left, top_right, bottom_right, bottom_left = found.corners
    assert np.degrees(np.arctan2(*(top_right - top_left)[::-1])) == pytest.approx(angle, abs=2)
    assert top_left[1] < bottom_left[1]
    assert top_right[1] < bottom_right[1]


@pytest.mark.parametrize(
    ("host_map", "card", "count"),
    [
        (drawn(), OcrCard(), 0),
        (drawn(((50, 50), (40, 10), 0), value=0.25), OcrCard(), 0),
        (drawn(((50, 50), (40, 10), 0), value=0.4), OcrCard(), 0),
        (drawn(((50, 50), (40, 10), 0), value=0.4), OcrCard(box_threshold=0.35), 1),
        (drawn(((50, 50), (40, 10), 0), value=0.25), OcrCard(pixel_threshold=0.2, box_threshold=0.2), 1),
        (drawn(((50, 50), (1, 1), 0)), OcrCard(), 0),
        (np.full((1, 1), 0.9, np.float32), OcrCard(), 0),
        (np.full((SIDE, SIDE), 0.9, np.float32), OcrCard(), 1),
    ],
)
def test_what_counts_as_a_line(host_map: np.ndarray, card: OcrCard, count: int) -> None:
    assert len(find_text(host_map, card)) == count


def test_of_too_many_marks_the_smallest_are_left_out() -> None:
    host_map = np.zeros((600, 600), np.float32)
    for index in range(MAX_LINES + 60):
        row, column = divmod(index, 60)
        host_map[10 * row + 1 : 10 * row + 6, 10 * column + 1 : 10 * column + (7 if index else 9)] = 1
    found = find_text(host_map, OcrCard())
    assert len(found) == MAX_LINES
    assert max(np.ptp(box.corners[:, 0]) for box in found) == np.ptp(found[0].corners[:, 0])


def test_reading_order() -> None:
    boxes = [
        box_at(0, 40, 50, 10),
        box_at(60, 2, 30, 10),
        box_at(0, 0, 50, 10),
        box_at(60, 39, 30, 12),
        box_at(0, 20, 90, 10),
    ]
    assert [boxes.index(box) for box in reading_order(boxes)] == [2, 1, 4, 0, 3]


@given(st.permutations(range(6)))
def test_the_order_does_not_depend_on_how_they_were_found(order: list[int]) -> None:
    boxes = [box_at(50 * (index % 2), 20 * (index // 2) + index % 2, 40, 10) for index in range(6)]
    assert reading_order([boxes[index] for index in order]) == boxes


def test_boxes_are_scaled_back_and_cut_at_the_edges() -> None:
    (found,) = scaled_back([box_at(-2, 5, 40, 10)], (2.0, 0.5), (60, 6))
    np.testing.assert_allclose(found.corners, [(0, 2.5), (60, 2.5), (60, 6), (0, 6)])

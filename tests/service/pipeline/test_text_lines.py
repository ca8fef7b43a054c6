from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.pipeline.text_boxes import TextBox
from service.pipeline.text_lines import MAX_WARPED, cut_out, read_ctc

LABELS = ("", "a", "b", " ")


def image() -> np.ndarray:
    """Red to the left, green to the right of x = 50."""
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[:, :50, 0] = pixels[:, 50:, 1] = 255
    return pixels


def test_an_upright_box_is_cut_as_it_is() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (60, 100, 3), np.uint8)
    line = cut_out(pixels, TextBox(np.float32([[10, 20], [70, 20], [70, 40], [10, 40]]), 1))
    np.testing.assert_array_equal(line, pixels[20:40, 10:70])


@pytest.mark.parametrize("angle", [-20, 0, 20])
def test_a_slanted_line_is_pulled_straight(angle: float) -> None:
    corners = cv2.boxPoints(((50, 30), (40, 10), angle))
    by_x = corners[np.argsort(corners[:, 0])]
    left, right = (pair[np.argsort(pair[:, 1])] for pair in (by_x[:2], by_x[2:]))
    line = cut_out(image(), TextBox(np.float32([left[0], right[0], right[1], left[1]]), 1))
    assert line.shape == (10, 40, 3)
    assert (line[:, :12, 0] > 200).all()
    assert (line[:, 28:, 1] > 200).all()


@pytest.mark.parametrize("length", [300, 3000])
def test_from_an_image_that_is_too_long_to_warp_the_part_under_the_box_is(length: int) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (60, 40_000, 3), np.uint8)
    left = 39_000 - length
    corners = np.float32([[left, 15], [39_000, 15], [39_000, 45], [left, 45]])
    np.testing.assert_array_equal(cut_out(pixels, TextBox(corners, 1)), pixels[15:45, left:39_000])


@pytest.mark.parametrize("is_downwards", [False, True])
def test_a_line_that_is_too_long_to_warp_is_scaled_down(is_downwards: bool) -> None:
    pixels = np.zeros((400, 40_000, 3), np.uint8)
    pixels[:, :20_000, 0] = pixels[:, 20_000:, 1] = 255
    corners = np.float32([[0, 0], [40_000, 0], [40_000, 400], [0, 400]])
    if is_downwards:
        pixels, corners = np.ascontiguousarray(pixels.transpose(1, 0, 2)), corners[:, ::-1][[0, 3, 2, 1]]
    line = cut_out(pixels, TextBox(np.ascontiguousarray(corners), 1))
    height, width, _ = line.shape
    assert width <= MAX_WARPED
    assert width / height == pytest.approx(100, rel=0.02)
    ends = (line[:, 0].mean(axis=0), line[:, -1].mean(axis=0))
    np.testing.assert_array_equal(ends, [[255, 0, 0], [0, 255, 0]])


def test_a_line_that_runs_downwards_is_turned() -> None:
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[:30, :, 0] = pixels[30:, :, 1] = 255
    line = cut_out(pixels, TextBox(np.float32([[40, 10], [50, 10], [50, 50], [40, 50]]), 1))
    assert line.shape == (10, 40, 3)
    assert (line[:, :18, 0] == 255).all()
    assert (line[:, 22:, 1] == 255).all()


def test_a_box_without_an_inside_is_no_line() -> None:
    assert cut_out(image(), TextBox(np.float32([[10, 20], [70, 20], [70, 20], [10, 20]]), 1)) is None


@pytest.mark.parametrize(
    ("best", "text"),
    [([], ""), ([0, 0], ""), ([1, 1, 1], "a"), ([1, 0, 1], "aa"), ([0, 1, 2, 2, 0, 3], "ab "), ([2, 1], "ba")],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_neighbours_are_merged_and_blanks_dropped(best: list[int], text: str, dtype: type) -> None:
    read = read_ctc((0.75 * np.eye(len(LABELS)))[best].astype(dtype).reshape(-1, 4), LABELS)
    assert (read.text, read.score) == (text, 0.75 if text else 0.0)


@given(st.text("ab", max_size=12), st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_a_text_spelled_with_blanks_between_is_read_back(text: str, lengths: list[int]) -> None:
    best = [0]
    for character, length in zip(text, lengths, strict=False):
        best += [LABELS.index(character)] * length + [0]
    assert read_ctc(np.eye(len(LABELS), dtype=np.float32)[best], LABELS).text == text

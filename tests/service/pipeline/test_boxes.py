"""Boxes: decoded as computed by hand, dropped as a plain loop drops them, and moved back to where they came from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.cards import BoxLayout, PreprocessCard, Resize
from service.pipeline.boxes import MAX_CANDIDATES, Boxes, decode_candidates, to_image, without_overlaps
from service.pipeline.images import ImageSize
from service.pipeline.preprocess import ImageInput, plan_resize
from service.tensors import DType


def boxes(*rows: tuple[float, float, float, float, float, int]) -> Boxes:
    """From rows of left, top, right, bottom, score and class."""
    values = np.array(rows, np.float32).reshape(-1, 6)
    return Boxes(values[:, :4], values[:, 4], values[:, 5].astype(np.int32))


YOLOV5 = np.float32([[50, 40, 20, 10, 0.5, 0.2, 0.8], [10, 10, 4, 4, 0.9, 0.3, 0.1], [1, 1, 1, 1, 0.1, 0.9, 0.9]])
YOLOV8 = np.float32([[50, 40, 20, 10, 0.1, 0.4], [10, 10, 4, 4, 0.27, 0.09], [1, 1, 1, 1, 0.09, 0.09]]).T


@pytest.mark.parametrize(("row", "layout"), [(YOLOV5, BoxLayout.YOLOV5), (YOLOV8, BoxLayout.YOLOV8)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_candidates_of_both_layouts(row: np.ndarray, layout: BoxLayout, dtype: type) -> None:
    found = decode_candidates(row.astype(dtype), layout, 0.25)
    np.testing.assert_array_equal(found.corners, [[40, 35, 60, 45], [8, 8, 12, 12]])
    np.testing.assert_allclose(found.scores, [0.4, 0.27], rtol=1e-3)
    assert found.classes.tolist() == [1, 0]


def test_no_candidate_reaches_the_score() -> None:
    assert len(decode_candidates(YOLOV8, BoxLayout.YOLOV8, 0.9)) == 0
    assert len(without_overlaps(boxes(), 0.5, 10)) == 0


def test_scores_that_are_not_numbers_are_kept_for_the_caller_to_see() -> None:
    column = np.float32([[1], [1], [1], [1], [np.nan]])
    assert np.isnan(decode_candidates(column, BoxLayout.YOLOV8, 0.9).scores).tolist() == [True]


def test_the_lesser_of_two_boxes_of_a_class_is_dropped_and_others_stay() -> None:
    found = without_overlaps(
        boxes((0, 0, 10, 10, 0.6, 1), (1, 0, 11, 10, 0.9, 1), (0, 0, 10, 10, 0.5, 0), (50, 50, 60, 60, 0.7, 1)), 0.5, 10
    )
    np.testing.assert_array_equal(found.corners, [[1, 0, 11, 10], [50, 50, 60, 60], [0, 0, 10, 10]])
    assert found.classes.tolist() == [1, 1, 0]


def test_most_boxes_are_the_best() -> None:
    apart = boxes(*((20 * i, 0, 20 * i + 10, 10, 0.1 * i, 0) for i in range(1, 8)))
    np.testing.assert_allclose(without_overlaps(apart, 0.5, 3).scores, [0.7, 0.6, 0.5], rtol=1e-6)


def test_so_many_candidates_that_only_the_best_are_compared() -> None:
    count = MAX_CANDIDATES + 100
    scores = np.linspace(0.1, 1, count, dtype=np.float32)
    same = Boxes(np.tile(np.float32([0, 0, 10, 10]), (count, 1)), scores, np.zeros(count, np.int32))
    assert without_overlaps(same, 0.5, 10).scores.tolist() == [1.0]


def iou(first: np.ndarray, second: np.ndarray) -> float:
    overlap = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    shared = float(np.prod(np.maximum(overlap, 0)))
    areas = float(np.prod(first[2:] - first[:2])) + float(np.prod(second[2:] - second[:2]))
    return shared / (areas - shared)


ROWS = st.lists(
    st.tuples(st.integers(-30, 60), st.integers(-30, 60), st.integers(1, 40), st.integers(1, 40), st.integers(0, 2)),
    max_size=12,
)


@given(ROWS, st.sampled_from([0.2, 0.45, 0.7]), st.permutations(range(12)))
def test_boxes_are_dropped_as_a_plain_loop_drops_them(rows, threshold, ranks) -> None:
    scored = zip(rows, ranks[: len(rows)], strict=True)
    candidates = boxes(*((x, y, x + w, y + h, (rank + 1) / 20, c) for (x, y, w, h, c), rank in scored))
    kept: list[int] = []
    for index in np.argsort(-candidates.scores):
        overlaps = [
            iou(candidates.corners[index], candidates.corners[other])
            for other in kept
            if candidates.classes[index] == candidates.classes[other]
        ]
        assume(all(abs(overlap - threshold) > 1e-3 for overlap in overlaps))
        if all(overlap <= threshold for overlap in overlaps):
            kept.append(int(index))
    found = without_overlaps(candidates, threshold, 100)
    np.testing.assert_array_equal(found.scores, candidates.scores[kept])
    np.testing.assert_array_equal(found.corners, candidates.corners[kept])


@pytest.mark.parametrize(
    ("size", "box", "back"),
    [
        (ImageSize(320, 640), (0, 160, 640, 480), (0, 0, 640, 320)),
        (ImageSize(1280, 640), (160, 0, 480, 640), (0, 0, 640, 1280)),
        (ImageSize(64, 64), (320, 320, 640, 640), (32, 32, 64, 64)),
        (ImageSize(320, 640), (100, 0, 200, 200), (100, 0, 200, 40)),
    ],
)
def test_letterboxed_boxes_by_hand(size: ImageSize, box: tuple[float, ...], back: tuple[float, ...]) -> None:
    target = ImageInput(DType.FP32, 640, 640, is_channels_last=False)
    plan = plan_resize(size.height, size.width, target, PreprocessCard(resize=Resize.LETTERBOX))
    np.testing.assert_allclose(to_image(boxes((*box, 1, 0)), plan, size).corners, [back], atol=1e-4)


def test_boxes_in_the_border_are_no_boxes_of_the_image() -> None:
    target = ImageInput(DType.FP32, 640, 640, is_channels_last=False)
    plan = plan_resize(320, 640, target, PreprocessCard(resize=Resize.LETTERBOX))
    found = to_image(boxes((0, 0, 640, 150, 0.9, 0), (0, 200, 10, 210, 0.8, 1)), plan, ImageSize(320, 640))
    assert found.classes.tolist() == [1]


CARDS = st.sampled_from(
    [
        PreprocessCard(resize=Resize.LETTERBOX),
        PreprocessCard(resize=Resize.STRETCH),
        PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=700),
    ]
)


@given(st.integers(1, 9000), st.integers(1, 9000), CARDS, st.data())
def test_a_box_of_the_image_that_the_model_sees_comes_back(height, width, card, data) -> None:
    target = ImageInput(DType.FP32, 480, 640, is_channels_last=False)
    plan, size = plan_resize(height, width, target, card), ImageSize(height, width)
    x = sorted(data.draw(st.lists(st.floats(0, width, width=32), min_size=2, max_size=2, unique=True)))
    y = sorted(data.draw(st.lists(st.floats(0, height, width=32), min_size=2, max_size=2, unique=True)))
    assume(x[1] - x[0] > 0.01 and y[1] - y[0] > 0.01)
    corner = np.array([x[0], y[0], x[1], y[1]])
    factor = np.array([plan.scaled.width / plan.source.width, plan.scaled.height / plan.source.height] * 2)
    origin = np.array([plan.source.left, plan.source.top] * 2)
    on_canvas = (corner - origin) * factor + np.array([plan.scaled.left, plan.scaled.top] * 2)
    found = to_image(boxes((*on_canvas, 1, 0)), plan, size)
    assume(len(found))  # a sliver may vanish in single precision
    np.testing.assert_allclose(found.corners[0], corner, rtol=2e-4, atol=2e-4 * max(height, width))

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from video.draw import annotated
from video.errors import VideoError

GREY = np.full((100, 200, 3), 128, np.uint8)
BOX = {"label": "dog", "index": 1, "score": 0.9, "box": [50.0, 40.0, 150.0, 80.0]}
LINE = {"text": "grüße", "score": 0.9, "box": [[10, 20], [60, 20], [60, 40], [10, 40]]}
CLASS = {"label": "90", "index": 1, "score": 0.5}


@pytest.mark.parametrize(
    ("result", "places"),
    [
        ({"detections": [BOX]}, [(40, 100), (60, 50), (80, 149)]),
        ({"lines": [LINE]}, [(20, 30), (40, 30), (30, 10)]),
    ],
)
def test_boxes_are_drawn_where_they_are(result: dict[str, Any], places: list[tuple[int, int]]) -> None:
    drawn = annotated(GREY, {"results": [result]})
    for place in places:
        assert not np.array_equal(drawn[place], GREY[place])
    assert np.array_equal(drawn[95, 195], GREY[95, 195])
    assert np.all(GREY == 128)


def test_classes_are_written_into_the_corner() -> None:
    drawn = annotated(GREY, {"results": [{"predictions": [CLASS, CLASS]}]})
    changed = np.argwhere((drawn != GREY).any(axis=2))
    assert len(changed) > 20
    assert changed[:, 1].max() < 120


def test_boxes_beyond_the_frame_do_no_harm() -> None:
    annotated(GREY, {"results": [{"detections": [{**BOX, "box": [-50.0, -40.0, 999.0, 800.0]}]}]})


@pytest.mark.parametrize("answer", [{"error": "no", "status": 500}, {"dropped": True}, {"results": [{}]}])
def test_a_frame_without_a_result_stays_as_it_is(answer: dict[str, Any]) -> None:
    drawn = annotated(GREY, answer)
    np.testing.assert_array_equal(drawn, GREY)
    assert drawn is not GREY


@pytest.mark.parametrize(
    "answer",
    [
        {"results": 5},
        {"results": [5]},
        {"results": [{"detections": 5}]},
        {"results": [{"detections": [{"box": [1, 2, 3]}]}]},
        {"results": [{"detections": [{"box": [1, 2, 3, 4]}]}]},
        {"results": [{"detections": [{**BOX, "score": "high"}]}]},
        {"results": [{"detections": [{**BOX, "index": None}]}]},
        {"results": [{"lines": [{"text": "grüße"}]}]},
        {"results": [{"lines": [{**LINE, "text": 5}]}]},
        {"results": [{"lines": [{**LINE, "box": []}]}]},
        {"results": [{"predictions": [CLASS, None]}]},
    ],
)
def test_an_answer_that_cannot_be_drawn_is_told(answer: dict[str, Any]) -> None:
    with pytest.raises(VideoError, match="cannot be drawn"):
        annotated(GREY, answer)

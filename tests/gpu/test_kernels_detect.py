"""The kernels of `detect` against their reference, emulated and on a GPU: equal boxes, classes and scores."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.detect import CANDIDATES, Detections, DetectLimits, DetectScratch, prepare_detect
from kernels.reference_detect import candidates, without_overlaps
from kernels.session import DeviceSession
from service.cards import BoxLayout
from service.runtime.cuda.calls import PreparedCall
from service.tensors import DType
from tests.gpu.kernel_cases import device_session  # noqa: F401 - a fixture

LAYOUTS = pytest.mark.parametrize("layout", [BoxLayout.YOLOV5, BoxLayout.YOLOV8])
FLOATS = pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])


class Detector:
    """Buffers for one shape of predictions, and the prepared calls."""

    def __init__(
        self,
        session: DeviceSession,
        predictions: np.ndarray,
        layout: BoxLayout,
        thresholds: tuple[float, float],
        limit: int,
    ) -> None:
        size = len(predictions)
        anchors = predictions.shape[2] if layout is BoxLayout.YOLOV8 else predictions.shape[1]
        self.session, self.layout, self.thresholds, self.limit = session, layout, thresholds, limit
        self.predictions = session.upload(predictions)
        self.out = Detections(
            session.empty(DType.INT32, size, 2),
            session.empty(DType.FP32, size, limit, 4),
            session.empty(DType.FP32, size, limit),
            session.empty(DType.INT32, size, limit),
        )
        scratch = DetectScratch(session.empty(DType.UINT64, size, anchors), session.empty(DType.INT32, size, 2))
        limits = DetectLimits(layout, *thresholds)
        self.calls: tuple[PreparedCall, ...] = prepare_detect(
            session.kernels, self.predictions, scratch, self.out, limits, stream=session.stream
        )

    def assert_found(self, predictions: np.ndarray) -> list[int]:
        """Holds what the device has found against the reference; gives the number of boxes per image."""
        counts, boxes, scores, classes = (
            self.session.download(tensor)
            for tensor in (self.out.counts, self.out.boxes, self.out.scores, self.out.classes)
        )
        for image, prediction in enumerate(predictions.astype(np.float32)):
            found = candidates(prediction, self.layout, self.thresholds[0])
            expected = without_overlaps(found, self.thresholds[1], self.limit, CANDIDATES)
            kept = len(expected.scores)
            assert counts[image].tolist() == [kept, expected.strange]
            np.testing.assert_array_equal(boxes[image, :kept], expected.corners)
            np.testing.assert_array_equal(scores[image, :kept], expected.scores)
            np.testing.assert_array_equal(classes[image, :kept], expected.classes)
            assert not boxes[image, kept:].any()
            assert not scores[image, kept:].any()
            assert (classes[image, kept:] == -1).all()
        return counts[:, 0].tolist()


def predictions_of(seed: int, size: int, anchors: int, classes: int, layout: BoxLayout, dtype: DType) -> np.ndarray:
    """Random heads: boxes all over 640 x 640 pixels, scores on a coarse grid, so that some are equal."""
    rng = np.random.default_rng(seed)
    centres, extents = rng.uniform(0, 640, (size, anchors, 2)), rng.uniform(5, 200, (size, anchors, 2))
    scores = rng.integers(0, 64, (size, anchors, classes)) / 64 * rng.uniform(0, 1, (size, anchors, 1)).round(1)
    columns = [centres, extents, scores]
    if layout is BoxLayout.YOLOV5:
        columns.insert(2, rng.integers(0, 64, (size, anchors, 1)) / 64)
    rows = np.concatenate(columns, axis=2).astype(dtype.numpy)
    return np.ascontiguousarray(rows.transpose(0, 2, 1)) if layout is BoxLayout.YOLOV8 else rows


@LAYOUTS
@FLOATS
@pytest.mark.parametrize(
    ("anchors", "classes", "score_threshold"),
    [(1, 1, 0.1), (77, 3, 0.3), (1024, 2, 0.0), (2100, 5, 0.05), (300, 80, 0.5)],
)
def test_boxes_are_the_reference(session, layout, dtype, anchors, classes, score_threshold) -> None:
    predictions = predictions_of(anchors, 2, anchors, classes, layout, dtype)
    detector = Detector(session, predictions, layout, (score_threshold, 0.5), 60)
    session.run(*detector.calls)
    detector.assert_found(predictions)


@LAYOUTS
def test_more_candidates_than_are_compared(session, layout) -> None:
    predictions = predictions_of(1, 1, 3 * CANDIDATES + 5, 2, layout, DType.FP32)
    detector = Detector(session, predictions, layout, (0.0, 0.9), CANDIDATES)
    session.run(*detector.calls)
    assert 0 < detector.assert_found(predictions)[0] < CANDIDATES


@LAYOUTS
def test_all_scores_equal(session, layout) -> None:
    predictions = predictions_of(2, 1, 1500, 1, layout, DType.FP32)
    scores = predictions[:, 4:] if layout is BoxLayout.YOLOV8 else predictions[..., 4:]
    scores[:] = 0.5
    detector = Detector(session, predictions, layout, (0.25, 0.5), 100)
    session.run(*detector.calls)
    assert detector.assert_found(predictions)[0] > 1


@LAYOUTS
@FLOATS
def test_nothing_is_found(session, layout, dtype) -> None:
    predictions = predictions_of(3, 2, 50, 3, layout, dtype)
    detector = Detector(session, predictions, layout, (1.5, 0.5), 10)
    session.run(*detector.calls)
    assert detector.assert_found(predictions) == [0, 0]


@LAYOUTS
@FLOATS
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_counted(session, layout, dtype, value) -> None:
    predictions = predictions_of(4, 2, 40, 3, layout, dtype)
    rows = predictions.transpose(0, 2, 1) if layout is BoxLayout.YOLOV8 else predictions
    rows[..., 4] = np.maximum(rows[..., 4], dtype.numpy.type(0.5))
    rows[0, 3, 1], rows[0, 9, -1], rows[0, 20, 2], rows[1, 0, 0] = value, value, value, value
    detector = Detector(session, predictions, layout, (0.1, 0.5), 40)
    session.run(*detector.calls)
    detector.assert_found(predictions)


def test_one_graph_serves_one_batch_after_another(session) -> None:
    first, second, third = (predictions_of(seed, 2, 500, 4, BoxLayout.YOLOV8, DType.FP16) for seed in (5, 6, 7))
    detector = Detector(session, first, BoxLayout.YOLOV8, (0.2, 0.45), 50)
    with session.capture(*detector.calls) as graph:
        for predictions in (second, third, first):
            session.rewrite(detector.predictions, predictions)
            graph.launch(stream=session.stream)
            detector.assert_found(predictions)

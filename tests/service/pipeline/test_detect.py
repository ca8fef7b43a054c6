from __future__ import annotations

import numpy as np
import orjson
import pytest

from service.cards import BatchingCard, BoxLayout, DetectCard, ModelCard, PreprocessCard, Resize
from service.errors import ExecutionFailed, InvalidInput, ModelLoadFailed
from service.models import ModelSpec, build_spec
from service.pipeline.detect import create_detect_task
from service.pipeline.frames import RawImage
from service.tensors import Dim, DType, TensorSpec
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, noise
from tests.service.pipeline.steps import drive

LABELS = ("cat", "dog")


def spec(
    dims: tuple[Dim, ...] = ("n", 6, 10),
    *,
    card: DetectCard | None = None,
    labels: tuple[str, ...] = LABELS,
    dtype: DType = DType.FP32,
    outputs: int = 1,
) -> ModelSpec:
    """A detector of two classes on letterboxed images of 64 x 64."""
    return build_spec(
        ModelCard(
            name="pets",
            task="detect",
            labels=labels,
            batching=BatchingCard(max_batch_size=4),
            preprocess=PreprocessCard(resize=Resize.LETTERBOX),
            detect=card or DetectCard(),
        ),
        version="2",
        platform="onnxruntime_onnx",
        inputs=(TensorSpec("images", DType.FP32, ("n", 3, 64, 64)),),
        outputs=tuple(TensorSpec(f"output{i}", dtype, dims) for i in range(outputs)),
    )


def yolov8(*candidates: tuple[float, ...]) -> np.ndarray:
    """FP32[6, 10] of candidates of centre, width, height and two scores; the others score nothing."""
    row = np.zeros((6, 10), np.float32)
    row[:, : len(candidates)] = np.array(candidates, np.float32).reshape(-1, 6).T
    return row


def detect(model: ModelSpec, rows: list[np.ndarray], *images: np.ndarray, **options: str) -> list[dict]:
    task = create_detect_task(model, max_image_pixels=10**6)
    task.check_options(options)
    body = form(*(part(encode(".png", image)) for image in images))
    answer, steps = drive(task.steps(body, FORM, options), lambda call: (np.stack(rows),))
    assert [[(call.rows, call.dims, call.outputs) for call in calls] for calls in steps] == [[(len(images), (), None)]]
    assert (answer["model_name"], answer["model_version"]) == ("pets", "2")
    orjson.dumps(answer)
    return answer["results"]


def test_boxes_are_in_pixels_of_each_image() -> None:
    wide, high = noise(32, 64), noise(128, 64)
    rows = [yolov8((32, 32, 20, 10, 0.1, 0.9)), yolov8((32, 32, 20, 10, 0.8, 0.1))]
    first, second = detect(spec(), rows, wide, high)
    assert (first["height"], first["width"]) == (32, 64)
    (found,) = first["detections"]
    assert (found["label"], found["index"]) == ("dog", 1)
    assert found["score"] == pytest.approx(0.9)
    assert found["box"] == pytest.approx([22, 11, 42, 21])
    (found,) = second["detections"]
    assert found["label"] == "cat"
    assert found["box"] == pytest.approx([12, 54, 52, 74])


def test_boxes_of_a_frame_are_those_of_its_file() -> None:
    image, row = noise(32, 64), yolov8((32, 32, 20, 10, 0.1, 0.9))
    task = create_detect_task(spec(), max_image_pixels=10**6)
    answer, steps = drive(task.frame_steps(RawImage.from_rgb(image), {}), lambda call: (row[np.newaxis],))
    assert answer["results"] == detect(spec(), [row], image)
    assert [len(calls) for calls in steps] == [1]


def test_nothing_is_found() -> None:
    (result,) = detect(spec(), [yolov8()], noise(8, 8))
    assert result == {"height": 8, "width": 8, "detections": []}


def test_without_labels_the_index_is_the_label() -> None:
    (result,) = detect(spec(labels=()), [yolov8((32, 32, 8, 8, 0.9, 0))], noise(64, 64))
    assert result["detections"][0]["label"] == "0"


SCENE = yolov8((20, 20, 20, 20, 0.9, 0), (22, 20, 20, 20, 0.8, 0), (50, 50, 10, 10, 0, 0.3), (50, 10, 8, 8, 0, 0.1))


@pytest.mark.parametrize(
    ("card", "options", "scores"),
    [
        (DetectCard(), {}, [0.9, 0.3]),
        (DetectCard(), {"score_threshold": "0.05"}, [0.9, 0.3, 0.1]),
        (DetectCard(), {"score_threshold": "0.5"}, [0.9]),
        (DetectCard(), {"iou_threshold": "1"}, [0.9, 0.8, 0.3]),
        (DetectCard(), {"max_detections": "1"}, [0.9]),
        (DetectCard(score_threshold=0.05, iou_threshold=0.9, max_detections=3), {}, [0.9, 0.8, 0.3]),
        (DetectCard(max_detections=1), {"max_detections": "2"}, [0.9, 0.3]),
    ],
)
def test_card_and_query_say_what_is_answered(card: DetectCard, options: dict[str, str], scores: list[float]) -> None:
    (result,) = detect(spec(card=card), [SCENE], noise(64, 64), **options)
    assert [found["score"] for found in result["detections"]] == pytest.approx(scores)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"top_k": "1"}, "unknown option 'top_k'; task 'detect' takes score_threshold, iou_threshold, max_detections"),
        ({"score_threshold": "1.5"}, "score_threshold is '1.5', a number from 0 to 1"),
        ({"score_threshold": "nan"}, "score_threshold is 'nan'"),
        ({"iou_threshold": ""}, "iou_threshold is ''"),
        ({"iou_threshold": "-0"}, "iou_threshold is '-0'"),
        ({"max_detections": "0"}, "max_detections is '0', a whole number from 1 to 10000"),
        ({"max_detections": "1e3"}, "max_detections is '1e3'"),
        ({"max_detections": "\u0663"}, "max_detections is"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        create_detect_task(spec(), max_image_pixels=1).check_options(options)


@pytest.mark.parametrize(
    "candidate",
    [(32, 32, 8, 8, np.nan, 0), (32, 32, 8, 8, np.inf, 0), (np.nan, 32, 8, 8, 0.9, 0), (0, 0, 1, np.inf, 0.9, 0)],
)
def test_figures_that_are_not_numbers_are_the_models_fault(candidate: tuple[float, ...]) -> None:
    with pytest.raises(ExecutionFailed, match="scores or boxes that are not numbers"):
        detect(spec(), [yolov8(candidate)], noise(64, 64))


@pytest.mark.parametrize(
    ("dims", "layout", "got"),
    [
        (("n", 6, 8400), BoxLayout.AUTO, BoxLayout.YOLOV8),
        (("n", 25200, 7), BoxLayout.AUTO, BoxLayout.YOLOV5),
        (("n", 6, "anchors"), BoxLayout.YOLOV8, BoxLayout.YOLOV8),
        (("n", "anchors", 7), BoxLayout.YOLOV5, BoxLayout.YOLOV5),
        (("n", 6, 5), BoxLayout.YOLOV8, BoxLayout.YOLOV8),
    ],
)
def test_layouts(dims: tuple[Dim, ...], layout: BoxLayout, got: BoxLayout) -> None:
    assert create_detect_task(spec(dims, card=DetectCard(layout=layout)), max_image_pixels=1).layout is got


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (spec(("n", 6, "anchors")), r"needs exactly one output.*\[detect\] layout says which"),
        (spec(("n", 6)), "needs exactly one output"),
        (spec(("n", 4, 8400)), "needs exactly one output"),
        (spec(dtype=DType.INT64), "needs exactly one output"),
        (spec(outputs=2), "needs exactly one output"),
        (spec(("n", 85, 8400)), "has 2 labels, the model has 81 classes as yolov8"),
    ],
)
def test_models_that_are_no_detectors(model: ModelSpec, says: str) -> None:
    with pytest.raises(ModelLoadFailed, match=says):
        create_detect_task(model, max_image_pixels=1)

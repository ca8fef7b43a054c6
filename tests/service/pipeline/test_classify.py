from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from service.errors import ExecutionFailed, InvalidInput, ModelLoadFailed
from service.pipeline.classify import QUICK_ROWS, ClassifyTask, create_classify_task, likeliest, to_probabilities
from service.pipeline.frames import RawImage
from service.tensors import DType, TensorSpec
from tests.service.pipeline.classifiers import make_spec
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, noise
from tests.service.pipeline.steps import drive

LABELS = ("circle", "square", "star", "line")


def task(**properties: object) -> ClassifyTask:
    return create_classify_task(make_spec(**properties), max_image_pixels=10_000)  # type: ignore[arg-type]


def scores(*rows: tuple[float, ...]) -> tuple[np.ndarray]:
    return (np.array(rows, np.float32),)


def answer_of(made: ClassifyTask, outputs: tuple[np.ndarray, ...], options: dict[str, str]) -> Any:
    """What is answered to as many images as the outputs have rows."""
    body = form(*[part(encode(".png", noise(24, 32)))] * len(outputs[0]))
    return drive(made.steps(body, FORM, options), lambda call: outputs)[0]


def test_answers_labels_of_the_likeliest_classes_first() -> None:
    answer = answer_of(task(labels=LABELS), scores((0.125, 0.5, 0.25, 0.125)), {"top_k": "2"})
    assert answer == {
        "model_name": "shapes",
        "model_version": "7",
        "results": [
            {
                "predictions": [
                    {"label": "square", "index": 1, "score": 0.5},
                    {"label": "star", "index": 2, "score": 0.25},
                ]
            }
        ],
    }


def test_answers_one_result_per_image_in_order() -> None:
    answer = answer_of(task(labels=LABELS), scores((1, 0, 0, 0), (0, 0, 0, 1)), {"top_k": "1"})
    assert [result["predictions"][0]["label"] for result in answer["results"]] == ["circle", "line"]


def test_without_labels_the_index_is_the_label() -> None:
    answer = answer_of(task(), scores((0, 0, 1, 0)), {"top_k": "1"})
    assert answer["results"][0]["predictions"] == [{"label": "2", "index": 2, "score": 1.0}]


@pytest.mark.parametrize(
    ("options", "count"), [({}, 4), ({"top_k": "1"}, 1), ({"top_k": "3"}, 3), ({"top_k": "99"}, 4)]
)
def test_top_k_bounds_the_answer(options: dict[str, str], count: int) -> None:
    answer = answer_of(task(), scores((0.25, 0.25, 0.25, 0.25)), options)
    assert [found["index"] for found in answer["results"][0]["predictions"]] == list(range(count))


def test_five_are_the_default() -> None:
    wide = task(outputs=(TensorSpec("scores", DType.FP32, ("n", 9)),))
    answer = answer_of(wide, scores(tuple(float(i) for i in range(9))), {})
    assert [found["index"] for found in answer["results"][0]["predictions"]] == [8, 7, 6, 5, 4]


@given(npst.arrays(np.float32, (2, 6), elements=st.floats(-100, 100, width=32)), st.integers(1, 8))
def test_the_answer_is_json_and_sorted(logits: np.ndarray, top_k: int) -> None:
    wide = task(outputs=(TensorSpec("scores", DType.FP32, ("n", 6)),))
    answer = json.loads(json.dumps(answer_of(wide, (logits,), {"top_k": str(top_k)})))
    for row, result in zip(to_probabilities(logits), answer["results"], strict=True):
        found = [prediction["score"] for prediction in result["predictions"]]
        assert found == sorted(row.tolist(), reverse=True)[:top_k]
        assert found == [float(row[prediction["index"]]) for prediction in result["predictions"]]


@given(npst.arrays(np.float32, st.integers(1, 300), elements=st.sampled_from([0.0, 0.25, 0.5])), st.integers(1, 400))
def test_of_equal_scores_the_lower_index_comes_first(row: np.ndarray, top_k: int) -> None:
    expected = sorted(range(len(row)), key=lambda index: (-row[index], index))[:top_k]
    assert likeliest(row, top_k).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_trailing_dimensions_of_one_are_dropped(dtype: type) -> None:
    pooled = task(outputs=(TensorSpec("scores", DType.FP32, ("n", 4, 1, 1)),))
    answer = answer_of(pooled, (np.array([0, 1, 0, 0], dtype).reshape(1, 4, 1, 1),), {"top_k": "1"})
    assert answer["results"][0]["predictions"][0]["index"] == 1


@pytest.mark.parametrize("options", [{}, {"top_k": "1"}, {"top_k": "1000"}])
def test_good_options_pass(options: dict[str, str]) -> None:
    task().check_options(options)


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "three", "+3", " 3", "1_0", "٣", "1000001", "9" * 5000])
def test_bad_top_k_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="a whole number from 1 to 1000000 is"):
        task().check_options({"top_k": value})


def test_unknown_options_name_the_known() -> None:
    with pytest.raises(InvalidInput, match=r"unknown option 'topk'.*takes top_k"):
        task().check_options({"top_k": "3", "topk": "3"})


def test_steps_ask_for_the_rows_of_the_images_and_answer_their_classes() -> None:
    steps = task().steps(encode(".png", noise(24, 32)), "image/png", {"top_k": "1"})
    step = next(steps)
    (call,) = step.calls
    assert step.is_rest_quick
    assert (call.rows, call.dims, call.outputs, call.member) == (1, (), None, "")
    assert call.inputs[0].shape == (1, 3, 24, 32)
    with pytest.raises(StopIteration) as done:
        steps.send((scores((0, 0, 1, 0)),))
    assert done.value.value["results"] == [{"predictions": [{"label": "2", "index": 2, "score": 1.0}]}]


@pytest.mark.parametrize(
    ("images", "top_k", "is_quick"),
    [(1, 256, True), (1, 257, False), (QUICK_ROWS, 5, True), (QUICK_ROWS + 1, 1, False), (4, 65, False)],
)
def test_what_takes_long_after_the_model_is_left_to_a_thread(images: int, top_k: int, is_quick: bool) -> None:
    body = form(*[part(encode(".png", noise(24, 32)))] * images)
    step = next(task(max_batch_size=16).steps(body, FORM, {"top_k": str(top_k)}))
    assert step.is_rest_quick is is_quick


def test_a_frame_is_answered_as_its_file_is() -> None:
    image = noise(24, 32)
    for steps in (
        task().steps(encode(".png", image), "image/png", {"top_k": "1"}),
        task().frame_steps(RawImage.from_rgb(image), {"top_k": "1"}),
    ):
        answer, ((call,),) = drive(steps, lambda call: scores((float(call.inputs[0][0, 0, 5, 6]), 0, 9, 0)))
        np.testing.assert_allclose(call.inputs[0][0], image.transpose(2, 0, 1) / 255, rtol=1e-6)
        assert [found["label"] for found in answer["results"][0]["predictions"]] == ["2"]


def test_logits_go_through_softmax() -> None:
    logits = np.array([[1.0, 2.0, 3.0, -50.0], [1000.0, 0.0, 1000.0, -1000.0]], np.float32)
    exponentials = np.exp(np.array([[-2.0, -1.0, 0.0, -53.0]]))
    found = to_probabilities(logits)
    np.testing.assert_allclose(found[:1], exponentials / exponentials.sum(), rtol=1e-6)
    np.testing.assert_allclose(found[1], [0.5, 0, 0.5, 0], atol=1e-7)


@given(npst.arrays(np.float64, (3, 1000), elements=st.floats(0, 1)), st.sampled_from([np.float16, np.float32]))
def test_distributions_stay_as_they_are(weights: np.ndarray, dtype: type) -> None:
    weights += 1e-3
    probabilities = (weights / weights.sum(axis=1, keepdims=True)).astype(dtype)
    np.testing.assert_array_equal(to_probabilities(probabilities), probabilities.astype(np.float32))


def test_each_row_is_judged_alone() -> None:
    found = to_probabilities(np.array([[0.25, 0.75], [2.0, 2.0], [-0.5, 1.5]], np.float32))
    np.testing.assert_array_equal(found[:2], np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    np.testing.assert_allclose(found[2], [1 / (1 + np.e**2), 1 - 1 / (1 + np.e**2)], rtol=1e-6)


def test_a_class_masked_with_minus_infinity_scores_zero() -> None:
    np.testing.assert_array_equal(to_probabilities(np.array([[-np.inf, 3.0]], np.float32)), [[0.0, 1.0]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_fail(bad: float) -> None:
    with pytest.raises(ExecutionFailed, match="'shapes' answered with scores that are not numbers"):
        answer_of(task(), scores((0.0, bad, 0.0, 0.0)), {})


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param((TensorSpec("a", DType.FP32, ("n", 4)), TensorSpec("b", DType.FP32, ("n", 4))), id="two outputs"),
        pytest.param((TensorSpec("a", DType.FP32, ("n",)),), id="rank 1"),
        pytest.param((TensorSpec("a", DType.FP32, ("n", 4, 7)),), id="a map"),
        pytest.param((TensorSpec("a", DType.FP32, ("n", 4, "w")),), id="a dynamic map"),
        pytest.param((TensorSpec("a", DType.INT64, ("n", 4)),), id="whole numbers"),
        pytest.param((TensorSpec("a", DType.FP32, ("n", 1)),), id="one class"),
    ],
)
def test_models_that_are_no_classifiers_are_refused(outputs: tuple[TensorSpec, ...]) -> None:
    with pytest.raises(ModelLoadFailed, match=r"exactly one output.*\[batch, classes\].*the model has 'a'"):
        task(outputs=outputs)


def test_labels_must_be_as_many_as_the_classes() -> None:
    with pytest.raises(ModelLoadFailed, match="3 labels, the model has 4 classes"):
        task(labels=LABELS[:3])

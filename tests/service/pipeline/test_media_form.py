"""What tasks ask of a model that takes media, driven by hand: which way each image goes, and how answers are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.specs import IMAGE
from service.buckets import Form
from service.cards import DetectCard, ModelCard
from service.errors import ExecutionFailed
from service.models import MediaForm, ModelSpec, build_spec
from service.pipeline import classify
from service.pipeline.boxes import Boxes, without_overlaps
from service.pipeline.classify import create_classify_task
from service.pipeline.detect import Limits, create_detect_task
from service.pipeline.embed import create_embed_task
from service.pipeline.frames import RawImage
from service.pipeline.steps import Call, Outputs
from service.tensors import BATCH_DIM, DType, TensorSpec
from tests.service.pipeline.classifiers import image_tensor, make_spec
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, noise
from tests.service.pipeline.steps import drive
from tests.service.pipeline.tokenizers_and_models import text_spec

LIMIT = 1000
"""Bytes of one image and its descriptor."""

BODY = form(*(part(encode(".png", noise(*sides))) for sides in ((10, 10), (40, 40), (5, 60))))


def media(*outputs: tuple[str, DType, tuple[int, ...]], sizes: tuple[int, ...] = (1, 2, 4)) -> MediaForm:
    return MediaForm(
        inputs=(TensorSpec("pixels", DType.UINT8, ("bytes",)), TensorSpec("descriptor", DType.UINT8, (BATCH_DIM, 64))),
        outputs=tuple(TensorSpec(name, dtype, (BATCH_DIM, *dims)) for name, dtype, dims in outputs),
        batch_sizes=sizes,
        max_row_bytes=LIMIT,
        example=lambda rows, dims: (),
    )


def classifier(ranked: int, classes: int = 4, sizes: tuple[int, ...] = (1, 2, 4)) -> ModelSpec:
    spec = make_spec(max_batch_size=4, outputs=(TensorSpec("scores", DType.FP32, ("n", classes)),))
    outputs = (("scores", DType.FP32, (ranked,)), ("classes", DType.INT32, (ranked,)))
    return spec.with_media(media(*outputs, sizes=sizes))


def ranked(call: Call) -> Outputs:
    """Scores of an image's own size, so that answers that change places are seen."""
    if call.form is Form.TENSORS:
        return (np.tile(np.float32([0, 1, 2, 9]), (call.rows, 1)),)
    entry = call.inputs[1].view(IMAGE)[0, 0]
    return np.float32([[entry["height"] / 100, 0.01, 0.0, 0.0]]), np.int32([[2, 1, 0, 3]])


def test_each_image_goes_its_own_way_and_answers_keep_their_order() -> None:
    task = create_classify_task(classifier(4), max_image_pixels=10**6)
    answer, ((*asked,),) = drive(task.steps(BODY, FORM, {"top_k": "1"}), ranked)
    assert [(call.form, call.rows) for call in asked] == [(Form.MEDIA, 1), (Form.MEDIA, 1), (Form.TENSORS, 1)]
    assert asked[2].inputs[0].shape == (1, 3, 24, 32)
    best = [result["predictions"] for result in answer["results"]]
    assert [[each["index"] for each in one] for one in best] == [[2], [3], [2]]
    assert [round(one[0]["score"], 2) for one in best] == [0.1, 1.0, 0.05]


@pytest.mark.parametrize(("sizes", "as_they_are"), [((1,), 2), ((1, 2), 4)])
def test_of_a_request_no_more_images_stay_decoded_than_a_batch_has_room_for(
    sizes: tuple[int, ...], as_they_are: int
) -> None:
    """Each has 300 bytes and its descriptor; the rest becomes tensors one by one, in one call."""
    task = create_classify_task(classifier(4, sizes=sizes), max_image_pixels=10**6)
    body = form(*(part(encode(".png", noise(10, 10))) for _ in range(4)))
    answer, ((*asked,),) = drive(task.steps(body, FORM, {}), ranked)
    rest = [(Form.TENSORS, 4 - as_they_are)] if as_they_are < 4 else []
    assert [(call.form, call.rows) for call in asked] == [(Form.MEDIA, 1)] * as_they_are + rest
    assert len(answer["results"]) == 4


@pytest.mark.parametrize(("sides", "is_quick"), [((10, 10), True), ((40, 40), False)])
def test_ranks_of_kernels_are_read_at_once_those_of_many_rows_by_a_thread(
    sides: tuple[int, int], is_quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smaller images go as they are, the larger ones as rows."""
    monkeypatch.setattr(classify, "QUICK_ROWS", 1)
    task = create_classify_task(classifier(4), max_image_pixels=10**6)
    body = form(*(part(encode(".png", noise(*sides))) for _ in range(2)))
    assert next(task.steps(body, FORM, {})).is_rest_quick is is_quick


def test_pixels_are_handed_on_without_a_copy() -> None:
    image = noise(8, 9)
    task = create_classify_task(classifier(4), max_image_pixels=10**6)
    _, ((call,),) = drive(task.frame_steps(RawImage.from_rgb(image), {}), ranked)
    assert np.shares_memory(call.inputs[0], image)


@pytest.mark.parametrize(
    ("ranking", "classes", "top_k", "form"),
    [
        (4, 4, "1000", Form.MEDIA),
        (16, 20, "16", Form.MEDIA),
        (16, 20, "17", Form.TENSORS),
    ],
)
def test_more_classes_than_are_ranked_are_ranked_here(ranking: int, classes: int, top_k: str, form: Form) -> None:
    task = create_classify_task(classifier(ranking, classes), max_image_pixels=10**6)
    step = next(task.frame_steps(RawImage.from_rgb(noise(4, 4)), {"top_k": top_k}))
    assert [call.form for call in step.calls] == [form]


def test_ranked_scores_that_are_no_numbers_fail() -> None:
    task = create_classify_task(classifier(4), max_image_pixels=10**6)
    with pytest.raises(ExecutionFailed, match="scores that are not numbers"):
        drive(
            task.frame_steps(RawImage.from_rgb(noise(4, 4)), {}),
            lambda call: (np.full((1, 4), np.nan, np.float32), np.full((1, 4), -1, np.int32)),
        )


def detector(boxes: int = 8, **card: Any) -> ModelSpec:
    spec = build_spec(
        ModelCard(name="boxes", task="detect", detect=DetectCard(max_detections=boxes, **card)),
        version="1",
        platform="tensorrt_plan",
        inputs=(image_tensor(),),
        outputs=(TensorSpec("candidates", DType.FP32, ("n", 6, 50)),),
    )
    outputs = (
        ("counts", DType.INT32, (2,)),
        ("boxes", DType.FP32, (boxes, 4)),
        ("scores", DType.FP32, (boxes,)),
        ("classes", DType.INT32, (boxes,)),
    )
    return spec.with_media(media(*outputs))


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({}, Form.MEDIA),
        ({"score_threshold": "0.9", "max_detections": "3"}, Form.MEDIA),
        ({"score_threshold": "0.2"}, Form.TENSORS),
        ({"iou_threshold": "0.46"}, Form.TENSORS),
        ({"max_detections": "9"}, Form.TENSORS),
    ],
)
def test_limits_that_the_kernels_were_not_given_are_met_here(options: dict[str, str], form: Form) -> None:
    task = create_detect_task(detector(), max_image_pixels=10**6)
    step = next(task.frame_steps(RawImage.from_rgb(noise(4, 4)), options))
    assert [call.form for call in step.calls] == [form]


def found(boxes: Boxes, most: int, strange: int = 0) -> Outputs:
    """As the kernels leave them: beyond the count zeros, with class -1."""
    count = len(boxes)
    corners, scores = np.zeros((1, most, 4), np.float32), np.zeros((1, most), np.float32)
    classes = np.full((1, most), -1, np.int32)
    corners[0, :count], scores[0, :count], classes[0, :count] = boxes.corners, boxes.scores, boxes.classes
    return np.int32([[count, strange]]), corners, scores, classes


@given(
    st.integers(0, 30),
    st.sampled_from([0.25, 0.4, 0.7, 1.0]),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
def test_a_higher_threshold_or_fewer_boxes_leave_what_the_kernels_had_found_with_them(
    count: int, threshold: float, most: int, seed: int
) -> None:
    """No two scores are equal: then the order of boxes is the kernels' own."""
    rng = np.random.default_rng(seed)
    corners = rng.random((count, 4), np.float32) * 30
    corners[:, 2:] += corners[:, :2]
    scores = rng.permutation(np.linspace(0.25, 0.99, count)).astype(np.float32)
    candidates = Boxes(corners, scores, rng.integers(0, 2, count).astype(np.int32))
    task = create_detect_task(detector(boxes=8), max_image_pixels=10**6)
    limits = Limits(threshold, 0.45, most)
    call = Call((), 1, form=Form.MEDIA)
    (got,) = task._boxes(limits, call, found(without_overlaps(candidates, 0.45, 8), 8))
    wanted = without_overlaps(candidates.take(np.flatnonzero(scores >= np.float32(threshold))), 0.45, most)
    np.testing.assert_array_equal(got.corners, wanted.corners)
    np.testing.assert_array_equal(got.scores, wanted.scores)
    np.testing.assert_array_equal(got.classes, wanted.classes)


def test_candidates_that_are_no_numbers_fail() -> None:
    task = create_detect_task(detector(), max_image_pixels=10**6)
    nothing = Boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int32))
    with pytest.raises(ExecutionFailed, match="boxes that are not numbers"):
        drive(task.frame_steps(RawImage.from_rgb(noise(4, 4)), {}), lambda call: found(nothing, 8, strange=1))


def test_boxes_are_moved_to_their_image() -> None:
    task = create_detect_task(detector(), max_image_pixels=10**6)
    boxes = Boxes(np.float32([[0, 0, 16, 12]]), np.float32([0.5]), np.int32([1]))
    answer, _ = drive(task.frame_steps(RawImage.from_rgb(noise(12, 16)), {}), lambda call: found(boxes, 8))
    (detection,) = answer["results"][0]["detections"]
    assert (detection["index"], detection["box"]) == (1, [0, 0, 8, 6])


def embedder() -> ModelSpec:
    spec = text_spec()
    inputs = (*spec.inputs, TensorSpec("counted", DType.INT32, spec.inputs[0].dims))
    vectors = (TensorSpec("vectors", DType.FP32, (BATCH_DIM, 2)),)
    return spec.with_media(MediaForm(inputs, vectors, (1, 2, 4), 1000, lambda rows, dims: ()))


def test_texts_say_which_tokens_count_and_get_vectors() -> None:
    task = create_embed_task(embedder(), max_image_pixels=1)
    lengths: list[list[int]] = []

    def run(call: Call) -> Outputs:
        assert call.form is Form.MEDIA
        ids, mask, counted = call.inputs
        assert not counted.flags.writeable
        np.testing.assert_array_equal(counted, mask)
        lengths.append(counted.sum(axis=1).tolist())
        return (np.stack([ids.sum(axis=1), counted.sum(axis=1)], axis=1).astype(np.float32),)

    body = b'{"text": ["red", "red green blue light", "blue"]}'
    answer, _ = drive(task.steps(body, "application/json", {}), run)
    assert lengths == [[3, 3], [6]]
    assert [result["embedding"][1] for result in answer["results"]] == [3, 6, 3]


def test_a_length_whose_buckets_of_media_are_not_served_is_pooled_here() -> None:
    spec = embedder()
    gone = {bucket for bucket in spec.buckets.known() if bucket.form is Form.MEDIA and bucket.dims == (8,)}
    spec = spec.without(gone)
    task = create_embed_task(spec, max_image_pixels=1)
    step = next(task.steps(b'{"text": ["red", "red green blue light"]}', "application/json", {}))
    assert [(call.form, call.outputs) for call in step.calls] == [(Form.MEDIA, None), (Form.TENSORS, (0,))]

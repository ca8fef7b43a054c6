from __future__ import annotations

import pytest

from service.errors import ModelLoadFailed
from service.pipeline.classify import ClassifyTask
from service.pipeline.detect import DetectTask
from service.pipeline.embed import EmbedTask
from service.pipeline.ocr import OcrTask
from service.pipeline.task import FrameTask, create_task
from service.tensors import DType, TensorSpec
from tests.service.pipeline.classifiers import make_spec


def test_raw_tensors_have_no_task() -> None:
    spec = make_spec(task="tensor", inputs=(TensorSpec("ids", DType.INT64, ("n", "length")),))
    assert create_task(spec, max_image_pixels=1) is None


def test_classify_is_made_with_the_pixel_limit() -> None:
    task = create_task(make_spec(), max_image_pixels=123)
    assert isinstance(task, ClassifyTask)
    assert task.images.max_pixels == 123


def test_tasks_of_images_take_frames_and_others_do_not() -> None:
    assert isinstance(create_task(make_spec(), max_image_pixels=1), FrameTask)
    assert issubclass(DetectTask, FrameTask)
    assert issubclass(OcrTask, FrameTask)
    assert not issubclass(EmbedTask, FrameTask)


def test_an_unknown_task_names_the_known() -> None:
    with pytest.raises(ModelLoadFailed, match="'paint'; the tasks are classify, detect, embed, ocr, tensor"):
        create_task(make_spec(task="paint"), max_image_pixels=1)


def test_a_model_that_does_not_fit_is_refused_at_load() -> None:
    with pytest.raises(ModelLoadFailed, match="needs exactly one input"):
        create_task(make_spec(inputs=(TensorSpec("ids", DType.INT64, ("n", "length")),)), max_image_pixels=1)

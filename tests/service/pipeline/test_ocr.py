"""Task `ocr` on two pretended models: the detector marks what is dark, the recogniser counts columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest

from service.cards import BatchingCard, ModelCard, OcrCard, PreprocessCard
from service.errors import ExecutionFailed, InvalidInput, ModelLoadFailed, PayloadTooLarge
from service.models import ModelSpec, build_spec
from service.pipeline.frames import RawImage
from service.pipeline.ocr import MAX_IMAGES, MAX_LINES_AT_ONCE, create_ocr_task
from service.pipeline.steps import Call, Outputs
from service.repository.composed import composed_spec
from service.tensors import Dim, DType, TensorSpec
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode
from tests.service.pipeline.steps import drive

LABELS = ("<blank>", *(chr(ord("a") + index) for index in range(25)))


def member(
    name: str,
    dims: tuple[Dim, ...],
    output: tuple[Dim, ...],
    *,
    buckets: dict[str, tuple[int, ...]] | None = None,
    labels: tuple[str, ...] = (),
    dtype: DType = DType.FP32,
) -> ModelSpec:
    return build_spec(
        ModelCard(
            name=name,
            labels=labels,
            batching=BatchingCard(max_batch_size=4),
            bucket_sizes=buckets or {},
            preprocess=PreprocessCard(scale=1.0),
        ),
        version="1",
        platform="test",
        inputs=(TensorSpec("x", dtype, dims),),
        outputs=(TensorSpec("y", DType.FP32, output),),
    )


def detector(**changes: object) -> ModelSpec:
    properties: dict[str, object] = {
        "dims": ("n", 3, "height", "width"),
        "output": ("n", 1, "height", "width"),
        "buckets": {"height": (64, 128), "width": (64, 256)},
    }
    return member("det", **(properties | changes))  # type: ignore[arg-type]


def recognizer(**changes: object) -> ModelSpec:
    properties: dict[str, object] = {
        "dims": ("n", 3, 16, "width"),
        "output": ("n", "steps", len(LABELS)),
        "buckets": {"width": (32, 64)},
        "labels": LABELS,
    }
    return member("rec", **(properties | changes))  # type: ignore[arg-type]


def task(det: ModelSpec | None = None, rec: ModelSpec | None = None, *, max_image_pixels: int = 10**6, **card: object):
    own = ModelCard(name="pages", task="ocr", ocr=OcrCard(detector="det", recognizer="rec", **card))  # type: ignore[arg-type]
    members = {"detector": det or detector(), "recognizer": rec or recognizer()}
    return create_ocr_task(composed_spec(own), members, max_image_pixels=max_image_pixels)


def run(call: Call) -> Outputs:
    (host_x,) = call.inputs
    if call.member == "detector":
        return ((host_x.mean(axis=1, keepdims=True) < 128).astype(np.float32),)
    assert call.member == "recognizer"
    probabilities = np.zeros((1, 4, len(LABELS)), np.float32)
    probabilities[0, 0, host_x.shape[3] // 4] = 0.75
    probabilities[0, 1:, 0] = 1
    return (probabilities,)


def page(*lines: tuple[int, int, int, int], height: int = 100, width: int = 200) -> np.ndarray:
    """White, with dark bars: left, top, width and height of each."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    for left, top, line_width, line_height in lines:
        pixels[top : top + line_height, left : left + line_width] = 0
    return pixels


def read(reader, *images: np.ndarray):
    answer, steps = drive(reader.steps(form(*(part(encode(".png", image)) for image in images)), FORM, {}), run)
    orjson.dumps(answer)
    assert (answer["model_name"], answer["model_version"]) == ("pages", "1")
    return answer["results"], steps


def test_lines_are_found_cut_out_and_read() -> None:
    (result,), steps = read(task(unclip_ratio=0.0), page((20, 20, 40, 20), (20, 60, 100, 20)))
    first, second = result["lines"]
    assert (result["height"], result["width"]) == (100, 200)
    assert result["text"] == f"{first['text']}\n{second['text']}"
    assert first["score"] == 0.75
    np.testing.assert_allclose(first["box"], [(20, 20), (60, 20), (60, 40), (20, 40)], atol=1)
    (detection,), lines = steps
    assert (detection.member, detection.rows, detection.dims) == ("detector", 1, (128, 256))
    assert [(call.member, call.rows) for call in lines] == [("recognizer", 1)] * 2
    assert [call.inputs[0].shape for call in lines] == [(1, 3, 16, call.dims[0]) for call in lines]
    assert lines[0].dims[0] < lines[1].dims[0] == 64


@pytest.mark.parametrize(
    ("height", "width", "dims"),
    [(100, 200, (128, 256)), (1000, 100, (128, 12)), (10, 10, (20, 20)), (1, 5000, (1, 256)), (64, 128, (128, 256))],
)
def test_the_detector_sees_images_enlarged_twice_at_most(height: int, width: int, dims: tuple[int, int]) -> None:
    _, steps = read(task(), page(height=height, width=width))
    assert [call.dims for call in steps[0]] == [dims]


def test_a_frame_is_read_as_its_file_is() -> None:
    image = page((20, 20, 40, 20), (20, 60, 100, 20))
    answer, steps = drive(task().frame_steps(RawImage.from_rgb(image), {}), run)
    assert answer["results"] == read(task(), image)[0]
    assert [len(calls) for calls in steps] == [1, 2]


def test_a_page_without_text_says_nothing() -> None:
    (result,), steps = read(task(), page())
    assert (result["text"], result["lines"]) == ("", [])
    assert len(steps) == 1


def test_what_is_read_without_confidence_is_no_text() -> None:
    (result,), _ = read(task(text_threshold=0.8), page((20, 20, 40, 20)))
    assert result["lines"] == []


def test_images_of_a_form_are_detected_together_and_answered_in_its_order() -> None:
    results, steps = read(task(), page((20, 20, 40, 20)), page(), page((10, 10, 100, 20), (10, 50, 50, 20)))
    assert [len(result["lines"]) for result in results] == [1, 0, 2]
    assert [len(calls) for calls in steps] == [3, 1, 2]


def test_so_many_lines_that_they_are_read_in_turns() -> None:
    bars = [(60 * column + 10, 10 * row + 2, 40, 6) for row in range(20) for column in range(4)]
    big = detector(buckets={"height": (512,), "width": (512,)})
    (result,), steps = read(task(big), page(*bars, height=210, width=256))
    assert len(result["lines"]) == len(bars) > 2 * MAX_LINES_AT_ONCE
    assert [len(calls) for calls in steps[1:]] == [32, 32, 16]


def test_rows_of_a_member_of_fixed_size_have_no_dims() -> None:
    fixed = recognizer(dims=("n", 3, 16, 48), buckets={})
    _, steps = read(task(rec=fixed), page((20, 20, 100, 20)))
    assert [call.dims for call in steps[1]] == [()]


@pytest.mark.parametrize("name", ["detector", "recognizer"])
def test_probabilities_that_are_not_numbers_are_the_models_fault(name: str) -> None:
    def broken(call: Call) -> Outputs:
        (host_y,) = run(call)
        return (np.full_like(host_y, np.nan) if call.member == name else host_y,)

    body = encode(".png", page((20, 20, 40, 20)))
    with pytest.raises(ExecutionFailed, match=f"model '{name[:3]}' answered with probabilities that are not numbers"):
        drive(task().steps(body, "image/png", {}), broken)


def test_images_of_a_request_are_bounded_together() -> None:
    small = page(height=10, width=10)
    assert len(read(task(max_image_pixels=200), small, small)[0]) == 2
    with pytest.raises(PayloadTooLarge, match=r"image 2 of 2 .*images before it have 100 of the 150 pixels"):
        read(task(max_image_pixels=150), small, small)
    with pytest.raises(PayloadTooLarge, match=r"at most 99 are allowed; scale it down, or raise [A-Z_]*$"):
        read(task(max_image_pixels=99), small)
    with pytest.raises(InvalidInput, match=f"more than {MAX_IMAGES} files"):
        read(task(), *[small] * (MAX_IMAGES + 1))


def test_options_are_refused() -> None:
    task().check_options({})
    with pytest.raises(InvalidInput, match="task 'ocr' takes none"):
        task().check_options({"top_k": "1"})


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"det": detector(output=("n", 2, "height", "width"))}, r"'det'.*shape \[batch, 1, height, width\]"),
        ({"det": detector(output=("n", 1, "height", "other"))}, r"'det'.*it has 'y' FP32 \[batch, 1, height, other\]"),
        ({"rec": recognizer(output=("n", len(LABELS)))}, r"'rec'.*shape \[batch, steps, classes\]"),
        ({"rec": recognizer(labels=LABELS[:-1])}, "has 26 classes and 25 labels"),
        ({"rec": recognizer(labels=())}, "has 26 classes and 0 labels"),
        ({"rec": recognizer(buckets={})}, r"'rec'.*with sizes in \[buckets\]"),
        ({"det": detector(dims=("n", 1, "height", "width"))}, r"'det'.*exactly one input"),
        ({"det": replace(detector(), inputs=())}, r"'det'.*exactly one input"),
        ({"det": detector(dtype=DType.INT64)}, r"'det'.*exactly one input"),
        ({"rec": recognizer(dims=("n", 3, 16, "w"), buckets={"w": (32,)})}, r"'rec'.*\[dims\] can give"),
    ],
)
def test_members_that_do_not_fit(members: dict[str, ModelSpec], says: str) -> None:
    with pytest.raises(ModelLoadFailed, match=says):
        task(**members)

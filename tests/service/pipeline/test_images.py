from __future__ import annotations

import numpy as np
import pytest

from service.cards import ModelCard
from service.errors import InvalidInput, PayloadTooLarge, UnsupportedMediaType
from service.models import build_spec
from service.pipeline.frames import RawImage
from service.pipeline.images import ImageLoader, create_image_loader
from service.tensors import DType, TensorSpec
from tests.service.pipeline.classifiers import image_tensor, make_spec
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, noise, png_claiming

IMAGES = [noise(24, 32, seed=seed) for seed in range(3)]
FILES = [encode(".png", image) for image in IMAGES]


def loader(*, max_batch_size: int | None = 3, max_pixels: int = 10_000) -> ImageLoader:
    leading = 1 if max_batch_size == 0 else "n"
    spec = make_spec(max_batch_size=max_batch_size, inputs=(image_tensor((leading, 3, 24, 32)),))
    return create_image_loader(spec, max_pixels=max_pixels)


def row_of(image: np.ndarray) -> np.ndarray:
    return image.transpose(2, 0, 1).astype(np.float32) * np.float32(1 / 255)


def test_one_image_is_one_row() -> None:
    prepared = loader().load(FILES[0], "image/png")
    (host_images,) = prepared.calls[0].inputs
    assert [call.rows for call in prepared.calls] == [1]
    assert host_images.shape == (1, 3, 24, 32)
    assert host_images.flags.c_contiguous
    assert not host_images.flags.writeable
    np.testing.assert_array_equal(host_images[0], row_of(IMAGES[0]))


def test_the_bytes_decide_not_the_content_type() -> None:
    (host_images,) = loader().load(FILES[0], "image/jpeg").calls[0].inputs
    np.testing.assert_array_equal(host_images[0], row_of(IMAGES[0]))


def test_images_of_a_form_are_rows_in_its_order() -> None:
    prepared = loader().load(form(*map(part, FILES)), FORM)
    assert [call.rows for call in prepared.calls] == [3]
    assert prepared.in_order([("a", "b", "c")]) == ["a", "b", "c"]
    np.testing.assert_array_equal(prepared.calls[0].inputs[0], np.stack([row_of(image) for image in IMAGES]))


@pytest.mark.parametrize(("max_batch_size", "limit"), [(2, 2), (0, 1)], ids=["batch of two", "no batch dimension"])
def test_more_images_than_the_largest_batch_are_refused(max_batch_size: int, limit: int) -> None:
    with pytest.raises(InvalidInput, match=f"more than {limit} files"):
        loader(max_batch_size=max_batch_size).load(form(*map(part, FILES)), FORM)


def test_a_model_without_a_batch_dimension_takes_one_image() -> None:
    assert loader(max_batch_size=0).load(form(part(FILES[0])), FORM).calls[0].rows == 1


@pytest.mark.parametrize(
    ("bad", "error"),
    [(FILES[0][:50], InvalidInput), (b"GIF89a", UnsupportedMediaType), (png_claiming(101, 100), PayloadTooLarge)],
)
def test_errors_say_which_image_of_a_form(bad: bytes, error: type[Exception]) -> None:
    body = form(part(FILES[0]), part(bad, 'form-data; name="x"; filename="b.png"'))
    with pytest.raises(error, match=r"^image 2 of 2 \('b\.png'\): the "):
        loader().load(body, FORM)


def test_errors_of_a_single_image_name_no_place() -> None:
    with pytest.raises(InvalidInput, match=r"^the PNG is truncated"):
        loader().load(FILES[0][:50], "image/png")


def test_height_and_width_may_be_the_one_size_that_their_buckets_have() -> None:
    spec = build_spec(
        ModelCard(name="shapes", task="classify", bucket_sizes={"batch": (1, 2), "h": (24,), "w": (32,)}),
        version="1",
        platform="onnxruntime_onnx",
        inputs=(image_tensor(("n", 3, "h", "w")),),
        outputs=(TensorSpec("scores", DType.FP32, ("n", 4)),),
    )
    (call,) = create_image_loader(spec, max_pixels=10_000).load(form(*map(part, FILES[:2])), FORM).calls
    assert (call.inputs[0].shape, call.rows, call.dims) == ((2, 3, 24, 32), 2, (24, 32))


def test_a_leading_dimension_that_is_no_batch_is_one_image() -> None:
    spec = make_spec(max_batch_size=0, inputs=(image_tensor(("n", 3, 24, 32)),))
    (call,) = create_image_loader(spec, max_pixels=10_000).load(FILES[0], "image/png").calls
    assert (call.inputs[0].shape, call.dims) == ((1, 3, 24, 32), (1,))


def test_a_frame_is_the_row_that_its_file_is() -> None:
    prepared = loader().load_frame(RawImage.from_rgb(IMAGES[1]))
    from_file = loader().load(FILES[1], "image/png")
    assert prepared.sizes == from_file.sizes
    (row,), (row_of_file,) = prepared.calls[0].inputs, from_file.calls[0].inputs
    assert not row.flags.writeable
    np.testing.assert_array_equal(row, row_of_file)

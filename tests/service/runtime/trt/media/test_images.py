"""How images of a batch are laid out for the kernel that scales them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.specs import IMAGE
from kernels.specs import PixelFormat as KernelFormat
from service.buckets import Bucket, Form
from service.errors import ExecutionFailed
from service.pipeline.frames import PixelFormat, RawImage, frame_bytes
from service.pipeline.image_descriptors import DESCRIPTOR_BYTES, described
from service.pipeline.preprocess import Region, ResizePlan
from service.requests import Batch, InferenceRequest, Stamps
from service.runtime.trt.media.form import aligned
from service.runtime.trt.media.images import ImageFeed
from service.runtime.trt.routes import DIRECT_FROM_BYTES, Route
from tests.service.pipeline.image_files import noise

UPLOAD = 1 << 40


def frame(pixel_format: PixelFormat, height: int, width: int) -> RawImage:
    data = np.random.default_rng(height).integers(0, 256, frame_bytes(pixel_format, height, width), np.uint8)
    return RawImage.from_bytes(data.tobytes(), pixel_format, height, width)


def request(image: RawImage) -> InferenceRequest:
    whole = Region(0, 0, image.height, image.width)
    inputs = described(image, ResizePlan(whole, Region(1, 2, 20, 30)))
    assert inputs is not None
    return InferenceRequest(
        inputs=inputs,
        rows=1,
        dims=(),
        outputs=(0,),
        priority=1,
        deadline_ns=0,
        nbytes=sum(values.nbytes for values in inputs),
        stamps=Stamps(0),
        form=Form.MEDIA,
    )


def batch(*images: RawImage, rows: int) -> Batch:
    return Batch(Bucket(rows, (), Form.MEDIA), tuple(map(request, images)), len(images))


def feed(rows: int, pixel_bytes: int) -> tuple[ImageFeed, np.ndarray]:
    host = np.full(aligned(rows * DESCRIPTOR_BYTES) + rows * pixel_bytes, 0xEE, np.uint8)
    return ImageFeed(host, rows=rows, upload=UPLOAD), host


def written(route: Route, host: np.ndarray) -> np.ndarray:
    """Upload memory once all pieces, cut as small as can be, are there."""
    for piece in route.work:
        for part in piece.cut(100):
            part.copy()
    return host


IMAGES = st.lists(
    st.tuples(st.sampled_from(PixelFormat), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=5
)


@given(IMAGES, st.integers(0, 3))
def test_every_descriptor_points_at_its_own_pixels(kinds, spare) -> None:
    images = [frame(kind, 2 * height, 2 * width) for kind, height, width in kinds]
    rows = len(images) + spare
    made, host = feed(rows, aligned(40 * 40 * 3))
    route = made.route(batch(*images, rows=rows), lambda address, nbytes: False)
    memory = written(route, host)
    entries = memory[: rows * DESCRIPTOR_BYTES].view(IMAGE)
    offsets = [piece.offset for piece in route.work]
    assert offsets == sorted(offsets)
    assert all(offset % 256 == 0 for offset in offsets)
    for image, entry in zip(images, entries, strict=False):
        start = int(entry["pixels"]) - UPLOAD
        np.testing.assert_array_equal(memory[start : start + image.pixels.nbytes], image.pixels.reshape(-1))
        assert (entry["height"], entry["width"]) == (image.height, image.width)
        if image.format is PixelFormat.NV12:
            assert int(entry["chroma"]) - int(entry["pixels"]) == image.height * image.width
        else:
            assert entry["chroma"] == 0
    assert not entries[len(images) :].view(np.uint8).any()


def test_page_locked_images_are_copied_from_where_they_lie() -> None:
    small, large = (frame(PixelFormat.RGB, side, side) for side in (100, 150))
    assert small.pixels.nbytes < DIRECT_FROM_BYTES <= large.pixels.nbytes
    made, _ = feed(4, aligned(150 * 150 * 3))
    route = made.route(batch(large, small, rows=4), lambda address, nbytes: True)
    assert route.direct == [(256, large.pixels.ctypes.data, large.pixels.nbytes)]
    assert [piece.offset for piece in route.work] == [0, 256 + aligned(large.pixels.nbytes)]


def test_more_than_there_is_room_for_is_refused() -> None:
    made, _ = feed(2, 256)
    big = frame(PixelFormat.RGB, 20, 20)
    with pytest.raises(ExecutionFailed, match=r"more than the 768 bytes that bucket 2:media has"):
        made.route(batch(big, rows=2), lambda address, nbytes: False)


def test_a_part_of_an_image_is_named_by_its_first_pixel() -> None:
    image = RawImage.from_rgb(noise(50, 9))
    inputs = described(image, ResizePlan(Region(10, 2, 30, 5), Region(-3, 0, 60, 10)))
    assert inputs is not None
    pixels, descriptor = inputs
    entry = descriptor.view(IMAGE)[0, 0]
    assert pixels.shape == (50 * 9 * 3,)
    assert not descriptor.flags.writeable
    assert (entry["pixels"], entry["pitch_bytes"]) == ((10 * 9 + 2) * 3, 27)
    assert (entry["height"], entry["width"], entry["format"]) == (30, 5, KernelFormat.RGB)
    assert (entry["top"], entry["left"], entry["scaled_height"], entry["scaled_width"]) == (-3, 0, 60, 10)


@pytest.mark.parametrize(
    ("image", "plan"),
    [
        (RawImage.from_rgb(np.zeros((1, 65536, 3), np.uint8)), ResizePlan(Region(0, 0, 1, 65536), Region(0, 0, 8, 8))),
        (RawImage.from_rgb(noise(2, 2)), ResizePlan(Region(0, 0, 2, 2), Region(0, 0, 8, 16385))),
        (frame(PixelFormat.NV12, 4, 40), ResizePlan(Region(0, 4, 4, 32), Region(0, 0, 8, 64))),
    ],
)
def test_what_the_kernel_cannot_scale(image: RawImage, plan: ResizePlan) -> None:
    assert described(image, plan) is None

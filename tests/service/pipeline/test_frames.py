from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput
from service.pipeline.frames import PixelFormat, RawImage, frame_bytes
from service.pipeline.preprocess import ImageInput, Preprocessor, value_table
from service.tensors import DType
from tests.service.pipeline.classifiers import image_tensor, make_spec
from tests.service.pipeline.image_files import noise, smooth


def nv12(rgb: np.ndarray) -> bytes:
    """An RGB image as NV12, by way of OpenCV's I420: the same samples, U and V in turn instead of one plane each."""
    height = len(rgb)
    planar = cv2.cvtColor(rgb, cv2.COLOR_RGB2YUV_I420)
    chroma = planar[height:].reshape(2, -1).T
    return planar[:height].tobytes() + chroma.tobytes()


def test_rgb_is_the_bytes_themselves():
    image = noise(3, 5)
    data = image.tobytes()
    frame = RawImage.from_bytes(data, PixelFormat.RGB, 3, 5)
    assert (frame.height, frame.width, frame.format) == (3, 5, PixelFormat.RGB)
    assert frame.to_rgb() is frame.pixels
    assert np.shares_memory(frame.pixels, np.frombuffer(data, np.uint8))
    np.testing.assert_array_equal(frame.pixels, image)


def test_bgr_swaps_the_channels():
    image = noise(4, 3)
    frame = RawImage.from_bytes(memoryview(image[..., ::-1].tobytes()), PixelFormat.BGR, 4, 3)
    np.testing.assert_array_equal(frame.to_rgb(), image)


def test_nv12_is_read_as_it_was_written():
    image = smooth(64, 96)
    frame = RawImage.from_bytes(nv12(image), PixelFormat.NV12, 64, 96)
    got = frame.to_rgb()
    assert got.shape == image.shape
    assert np.abs(got.astype(int) - image.astype(int)).mean() < 2


def test_nv12_has_u_before_v():
    """Grey luma with U at its highest is blue: swapped planes would make it red."""
    data = bytes([128] * 4) + bytes([240, 128])
    red, green, blue = RawImage.from_bytes(data, PixelFormat.NV12, 2, 2).to_rgb()[0, 0].tolist()
    assert blue > green
    assert blue > red


def test_a_decoded_image_is_a_frame_without_a_copy():
    image = noise(2, 7)
    frame = RawImage.from_rgb(image)
    assert frame.pixels is image
    assert (frame.height, frame.width, frame.format) == (2, 7, PixelFormat.RGB)


@pytest.mark.parametrize("pixel_format", PixelFormat)
def test_pixels_that_cannot_be_written_to_are_preprocessed(pixel_format):
    image = smooth(32, 48)
    data = {"rgb": image.tobytes(), "bgr": image[..., ::-1].tobytes(), "nv12": nv12(image)}[pixel_format.value]
    frame = RawImage.from_bytes(data, pixel_format, 32, 48)
    assert not frame.pixels.flags.writeable
    spec = make_spec(inputs=(image_tensor((1, 3, 16, 16)),))
    preprocessor = Preprocessor(
        ImageInput(DType.FP32, 16, 16, is_channels_last=False), spec.card.preprocess, value_table(spec, DType.FP32)
    )
    row, wanted = preprocessor.target.allocate(2)
    preprocessor.write(frame.to_rgb(), row)
    preprocessor.write(image, wanted)
    assert np.abs(row - wanted).max() < 0.1


@given(st.sampled_from(PixelFormat), st.integers(1, 40), st.integers(1, 40), st.integers(-7, 7))
def test_only_the_exact_number_of_bytes_is_taken(pixel_format, height, width, difference):
    if pixel_format is PixelFormat.NV12:
        height, width = 2 * height, 2 * width
    needed = frame_bytes(pixel_format, height, width)
    data = bytes(max(0, needed + difference))
    if len(data) == needed:
        assert RawImage.from_bytes(data, pixel_format, height, width).to_rgb().shape == (height, width, 3)
        return
    with pytest.raises(InvalidInput, match=rf"has {len(data)} bytes.* has exactly {needed};"):
        RawImage.from_bytes(data, pixel_format, height, width)


@pytest.mark.parametrize(
    ("pixel_format", "height", "width", "message"),
    [
        (PixelFormat.RGB, 0, 4, "at least 1 x 1"),
        (PixelFormat.BGR, 4, -1, "at least 1 x 1"),
        (PixelFormat.NV12, 0, 0, "at least 1 x 1"),
        (PixelFormat.NV12, 3, 4, "4 x 3 pixels, nv12 needs even sides"),
        (PixelFormat.NV12, 4, 3, "3 x 4 pixels, nv12 needs even sides"),
    ],
)
def test_sides_that_are_not_allowed_are_refused(pixel_format, height, width, message):
    with pytest.raises(InvalidInput, match=message):
        frame_bytes(pixel_format, height, width)

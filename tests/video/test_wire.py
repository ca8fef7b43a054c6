from __future__ import annotations

import cv2
import numpy as np
import pytest

from service.pipeline.frames import PixelFormat, RawImage
from tests.video.clips import picture
from video.errors import VideoError
from video.wire import FrameFormat, default_format, encode, header


def test_rgb_is_read_by_the_server_as_it_was() -> None:
    image = picture(3, 5, 7)
    frame = RawImage.from_bytes(encode(image, FrameFormat.RGB), PixelFormat.RGB, 5, 7)
    np.testing.assert_array_equal(frame.to_rgb()[..., ::-1], image)


def test_nv12_is_read_by_the_server_nearly_as_it_was() -> None:
    image = np.asarray(cv2.GaussianBlur(picture(30), (21, 21), 0), np.uint8)
    frame = RawImage.from_bytes(encode(image, FrameFormat.NV12), PixelFormat.NV12, *image.shape[:2])
    assert np.abs(frame.to_rgb()[..., ::-1].astype(int) - image).max() < 16


def test_jpeg_is_a_file() -> None:
    data = encode(picture(3, 40, 50), FrameFormat.JPEG)
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == (40, 50, 3)


@pytest.mark.parametrize(
    ("frame_format", "said"),
    [
        (FrameFormat.NV12, {"format": "nv12", "width": 8, "height": 6}),
        (FrameFormat.RGB, {"format": "rgb", "width": 8, "height": 6}),
        (FrameFormat.JPEG, {"format": "jpeg"}),
    ],
)
def test_the_header_says_what_the_server_must_know(frame_format: FrameFormat, said: dict[str, object]) -> None:
    assert header(picture(0, 6, 8), frame_format) == said


def test_odd_sides_are_no_nv12() -> None:
    with pytest.raises(VideoError, match="8 x 5 pixels cannot travel as nv12"):
        header(picture(0, 5, 8), FrameFormat.NV12)


@pytest.mark.parametrize(
    ("height", "width", "is_folder", "expected"),
    [
        (6, 8, False, FrameFormat.NV12),
        (5, 8, False, FrameFormat.RGB),
        (6, 7, False, FrameFormat.RGB),
        (6, 8, True, FrameFormat.JPEG),
    ],
)
def test_the_format_suits_the_frames(height: int, width: int, is_folder: bool, expected: FrameFormat) -> None:
    assert default_format(picture(0, height, width), is_folder=is_folder) is expected

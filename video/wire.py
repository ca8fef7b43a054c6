"""A frame as a stream takes it: encoded, or raw in a layout that both sides know from the header."""

from __future__ import annotations

from enum import Enum

import cv2
import numpy as np

from video.errors import VideoError
from video.source import Image

JPEG_QUALITY = 90


class FrameFormat(Enum):
    """How frames travel; the value is the protocol's word."""

    NV12 = "nv12"
    RGB = "rgb"
    JPEG = "jpeg"


def encode(image: Image, frame_format: FrameFormat) -> bytes:
    """The message of a frame; sides must be even for NV12."""
    match frame_format:
        case FrameFormat.JPEG:
            is_written, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
            assert is_written, "OpenCV writes any 8-bit image of three channels as JPEG"
            return data.tobytes()
        case FrameFormat.RGB:
            return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), np.uint8).tobytes()
        case FrameFormat.NV12:
            return _nv12(image)


def header(image: Image, frame_format: FrameFormat) -> dict[str, object]:
    """What a stream's header says of frames like this one.

    Raises:
        VideoError: the format does not suit the frame.
    """
    height, width, _ = image.shape
    if frame_format is FrameFormat.JPEG:
        return {"format": frame_format.value}
    if frame_format is FrameFormat.NV12 and (height % 2 or width % 2):
        raise VideoError(f"frames of {width} x {height} pixels cannot travel as nv12, which needs even sides; use rgb")
    return {"format": frame_format.value, "width": width, "height": height}


def default_format(image: Image, *, is_folder: bool) -> FrameFormat:
    """JPEG for images of any sizes, else the raw format with the fewest bytes that suits the frame."""
    if is_folder:
        return FrameFormat.JPEG
    height, width, _ = image.shape
    return FrameFormat.RGB if height % 2 or width % 2 else FrameFormat.NV12


def _nv12(image: Image) -> bytes:
    """OpenCV writes the two colour planes one after the other; NV12 has their samples in turn."""
    height = len(image)
    planar = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420), np.uint8)
    colours = np.ascontiguousarray(planar[height:].reshape(2, -1).T)
    return planar[:height].tobytes() + colours.tobytes()

"""Images that need no decoding: what a raw frame's bytes mean, held against its size before anything reads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import cv2
import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput
from service.pipeline.decode import RgbImage


class PixelFormat(Enum):
    """How the pixels of an image lie in memory; the value is the word of the protocol.

    `RGB` and `BGR` are packed 8-bit channels. `NV12` is what cameras and video decoders give: a plane of luma, then U
    and V in turn, one pair for each 2 x 2 pixels; BT.601 in the limited range, as OpenCV reads it.
    """

    RGB = "rgb"
    BGR = "bgr"
    NV12 = "nv12"


@dataclass(frozen=True, slots=True, eq=False)
class RawImage:
    """An image in host memory whose pixels are at hand, whoever decoded it.

    Attributes:
        pixels: uint8[height, width, 3], or uint8[height * 3 / 2, width] for NV12; C-contiguous, possibly read-only.
        format: what they mean.
        height: pixels, at least 1; even for NV12.
        width: likewise.
    """

    pixels: npt.NDArray[np.uint8]
    format: PixelFormat
    height: int
    width: int

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, pixel_format: PixelFormat, height: int, width: int
    ) -> RawImage:
        """The image that `data` is, without a copy: rows from the top, without gaps between them.

        Raises:
            InvalidInput: the sides are not allowed, as by `frame_bytes`, or `data` is not exactly as long as they say.
        """
        needed_bytes = frame_bytes(pixel_format, height, width)
        got_bytes = memoryview(data).nbytes
        if got_bytes != needed_bytes:
            raise InvalidInput(
                f"the frame has {got_bytes} bytes, {pixel_format.value} of {width} x {height} pixels has exactly "
                f"{needed_bytes}; send whole frames without gaps between their rows, in the format and size announced"
            )
        shape = (height * 3 // 2, width) if pixel_format is PixelFormat.NV12 else (height, width, 3)
        return cls(np.frombuffer(data, np.uint8).reshape(shape), pixel_format, height, width)

    @classmethod
    def from_rgb(cls, image: RgbImage) -> RawImage:
        """A decoded image, without a copy."""
        return cls(image, PixelFormat.RGB, image.shape[0], image.shape[1])

    def to_rgb(self) -> RgbImage:
        """The image as uint8[height, width, 3] RGB in host memory; of RGB its own pixels, not to be changed."""
        match self.format:
            case PixelFormat.RGB:
                return self.pixels
            case PixelFormat.BGR:
                return np.asarray(cv2.cvtColor(self.pixels, cv2.COLOR_BGR2RGB), np.uint8)
            case PixelFormat.NV12:
                return np.asarray(cv2.cvtColor(self.pixels, cv2.COLOR_YUV2RGB_NV12), np.uint8)


def frame_bytes(pixel_format: PixelFormat, height: int, width: int) -> int:
    """The bytes of a raw frame.

    Raises:
        InvalidInput: a side is less than 1, or odd for NV12.
    """
    if height < 1 or width < 1:
        raise InvalidInput(f"a frame has {width} x {height} pixels, at least 1 x 1 is needed; give both in pixels")
    if pixel_format is not PixelFormat.NV12:
        return height * width * 3
    if height % 2 or width % 2:
        raise InvalidInput(
            f"a frame has {width} x {height} pixels, nv12 needs even sides, because 2 x 2 pixels share a colour; "
            "crop a row or column, or send rgb"
        )
    return height * width * 3 // 2

"""What the bytes of an image file say about it before a single pixel is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ImageFormat(Enum):
    """File formats that the decoder reads; the value is the name in messages."""

    JPEG = "JPEG"
    PNG = "PNG"
    WEBP = "WebP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """Properties of a still or animated image, as its file declares them.

    Attributes:
        format: the file format, told from the leading bytes.
        width: pixels as stored, before the orientation is applied; at least 1.
        height: likewise.
        channels: samples per pixel as stored: 1 grey or palette index, 2 grey and alpha, 3 colour,
            4 colour and alpha, or CMYK.
        bit_depth: bits per sample as stored.
        orientation: EXIF orientation, 1 (upright) to 8.
        is_animated: whether the file holds more than one frame.
        transparent_grey: the grey value, of the decoded samples, that stands for transparent; None if there is none.
    """

    format: ImageFormat
    width: int
    height: int
    channels: int
    bit_depth: int
    orientation: int = 1
    is_animated: bool = False
    transparent_grey: int | None = None

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height

"""WebP: the canvas, the EXIF orientation, and whether the file is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import InvalidInput
from service.pipeline.containers.exif import UPRIGHT, read_orientation
from service.pipeline.containers.header import ImageFormat, ImageHeader

RIFF_SIGNATURE = b"RIFF"
WEBP_SIGNATURE = b"WEBP"

MAX_CHUNKS = 4096
"""Chunks of one file; a still image has at most a dozen."""

_RIFF_HEADER_BYTES = 12
_ANIMATION_FLAG = 0x02
_ALPHA_FLAG = 0x10
_EXIF_PREFIX = b"Exif\0\0"
_LOSSY_START_CODE = b"\x9d\x01\x2a"
_LOSSLESS_SIGNATURE = 0x2F


@dataclass(frozen=True, slots=True, kw_only=True)
class _Canvas:
    """Size and kind of picture, as the extended header or the image data declares it."""

    width: int
    height: int
    has_alpha: bool = False
    is_animated: bool = False


def read_webp_header(data: memoryview) -> ImageHeader:
    """The header of a whole WebP file; bytes after its end are ignored.

    Raises:
        InvalidInput: the file is truncated or malformed.
    """
    extended: _Canvas | None = None
    frame: _Canvas | None = None
    orientation = UPRIGHT
    for kind, content in _chunks(data):
        if kind == b"VP8X" and extended is None:
            extended = _parse_extended(content)
        elif kind == b"VP8 " and frame is None:
            frame = _parse_lossy(content)
        elif kind == b"VP8L" and frame is None:
            frame = _parse_lossless(content)
        elif kind == b"EXIF":
            orientation = read_orientation(content[6:] if content[:6] == _EXIF_PREFIX else content)
    is_animated = extended is not None and extended.is_animated
    canvas = extended or frame
    if canvas is None or (frame is None and not is_animated):
        raise InvalidInput("the WebP is malformed: it holds no image data")
    if frame is not None and not is_animated and (frame.width, frame.height) != (canvas.width, canvas.height):
        raise InvalidInput(
            f"the WebP is malformed: a frame of {frame.width} x {frame.height} pixels "
            f"on a canvas of {canvas.width} x {canvas.height}"
        )
    if not canvas.width or not canvas.height:
        raise InvalidInput(f"the WebP declares {canvas.width} x {canvas.height} pixels; both must be at least 1")
    return ImageHeader(
        format=ImageFormat.WEBP,
        width=canvas.width,
        height=canvas.height,
        channels=4 if canvas.has_alpha else 3,
        bit_depth=8,
        orientation=orientation,
        is_animated=is_animated,
    )


def _chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise InvalidInput(f"the WebP is truncated: it declares {end} bytes, got {len(data)}; send the whole file")
    position = _RIFF_HEADER_BYTES
    for _ in range(MAX_CHUNKS):
        if position + 8 > end:
            return
        length = int.from_bytes(data[position + 4 : position + 8], "little")
        if position + 8 + length > end:
            raise InvalidInput(
                f"the WebP is malformed: the chunk at byte {position} declares {length} bytes, the file ends at {end}"
            )
        yield bytes(data[position : position + 4]), data[position + 8 : position + 8 + length]
        position += 8 + length + length % 2
    raise InvalidInput(f"the WebP has more than {MAX_CHUNKS} chunks; save it anew")


def _parse_extended(content: memoryview) -> _Canvas:
    if len(content) < 10:
        raise InvalidInput(f"the WebP is malformed: its extended header has {len(content)} bytes, 10 are needed")
    return _Canvas(
        width=1 + int.from_bytes(content[4:7], "little"),
        height=1 + int.from_bytes(content[7:10], "little"),
        has_alpha=bool(content[0] & _ALPHA_FLAG),
        is_animated=bool(content[0] & _ANIMATION_FLAG),
    )


def _parse_lossy(content: memoryview) -> _Canvas:
    if len(content) < 10 or content[3:6] != _LOSSY_START_CODE:
        raise InvalidInput("the WebP is malformed: its lossy data does not start with a key frame")
    size_mask = 0x3FFF  # the two bits above are a hint for scaling
    return _Canvas(
        width=int.from_bytes(content[6:8], "little") & size_mask,
        height=int.from_bytes(content[8:10], "little") & size_mask,
    )


def _parse_lossless(content: memoryview) -> _Canvas:
    if len(content) < 5 or content[0] != _LOSSLESS_SIGNATURE:
        raise InvalidInput("the WebP is malformed: its lossless data does not start with its signature")
    bits = int.from_bytes(content[1:5], "little")
    return _Canvas(width=1 + (bits & 0x3FFF), height=1 + (bits >> 14 & 0x3FFF), has_alpha=bool(bits >> 28 & 1))

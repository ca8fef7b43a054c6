"""JPEG: the frame header, the EXIF orientation, and whether the file is whole.

The walk follows the decoder's own rules for finding markers, so that the size that is checked is the size that is
decoded. It reads marker segments alone; compressed data is skipped by one search per marker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from service.errors import InvalidInput
from service.pipeline.containers.exif import UPRIGHT, read_orientation
from service.pipeline.containers.header import ImageFormat, ImageHeader

SIGNATURE = b"\xff\xd8\xff"

MAX_SEGMENTS = 4096
"""Marker segments of one file. A 16 MB colour profile takes 256."""

MAX_SCANS = 32
"""Scans of one file: each costs a pass over all pixels. Progressive encoders write 6 to 18."""

_START_OF_IMAGE, _END_OF_IMAGE, _START_OF_SCAN, _APP1, _TEMPORARY = 0xD8, 0xD9, 0xDA, 0xE1, 0x01
_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EXIF_PREFIX = b"Exif\0\0"

# A marker is 0xFF and a code. Not markers: 0xFF00, a stuffed data byte; 0xFFD0-D7, restarts inside compressed data;
# and 0xFFFF, where the first byte is filling.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")


@dataclass(slots=True)
class _Walk:
    """What the segments have told so far."""

    frame: tuple[int, int, int, int] | None = None  # bit depth, height, width, channels
    orientation: int | None = None
    scans: int = 0


def read_jpeg_header(data: memoryview) -> ImageHeader:
    """The header of a whole JPEG file; bytes after its end are ignored.

    Raises:
        InvalidInput: the file is truncated, malformed, or of a kind that is not read (12-bit, sized by its lines).
    """
    walk = _Walk()
    position = len(SIGNATURE) - 1
    for _ in range(MAX_SEGMENTS):
        match = _MARKER.search(data, position)
        if match is None:
            raise InvalidInput(
                f"the JPEG is truncated: its {len(data)} bytes hold no end-of-image marker; send the whole file"
            )
        marker, position = data[match.start() + 1], match.end()
        if marker == _END_OF_IMAGE:
            return _header(walk)
        if marker in (_START_OF_IMAGE, _TEMPORARY):
            continue
        end = _segment_end(data, position)
        _note(walk, marker, data[position + 2 : end])
        position = end
    raise InvalidInput(f"the JPEG has more than {MAX_SEGMENTS} marker segments; save it anew")


def _segment_end(data: memoryview, position: int) -> int:
    length = int.from_bytes(data[position : position + 2], "big")
    end = position + length
    if position + 2 > len(data) or end > len(data):
        raise InvalidInput(
            f"the JPEG is truncated: the segment at byte {position - 2} does not end within the "
            f"{len(data)} bytes sent; send the whole file"
        )
    if length < 2:
        raise InvalidInput(f"the JPEG is malformed: the segment at byte {position - 2} declares {length} bytes")
    return end


def _note(walk: _Walk, marker: int, segment: memoryview) -> None:
    if marker in _FRAME_HEADERS:
        if walk.frame is not None:
            raise InvalidInput("the JPEG is malformed: it has more than one frame header")
        if len(segment) < 6:
            raise InvalidInput(
                f"the JPEG is malformed: its frame header has {len(segment)} bytes, at least 6 are needed"
            )
        walk.frame = (
            segment[0],
            int.from_bytes(segment[1:3], "big"),
            int.from_bytes(segment[3:5], "big"),
            segment[5],
        )
    elif marker == _START_OF_SCAN:
        walk.scans += 1
        if walk.scans > MAX_SCANS:
            raise InvalidInput(f"the JPEG has more than {MAX_SCANS} scans; save it as baseline or plain progressive")
    elif marker == _APP1 and walk.orientation is None and segment[:6] == _EXIF_PREFIX:
        walk.orientation = read_orientation(segment[6:])


def _header(walk: _Walk) -> ImageHeader:
    if walk.frame is None or not walk.scans:
        raise InvalidInput("the JPEG is malformed: it ends before its frame header and first scan")
    bit_depth, height, width, channels = walk.frame
    if not width or not height:
        raise InvalidInput(f"the JPEG declares {width} x {height} pixels; both must be at least 1 in its frame header")
    if bit_depth != 8 or channels not in (1, 3, 4):
        raise InvalidInput(
            f"the JPEG has {channels} channels of {bit_depth} bits; grey, colour and CMYK of 8 bits can be read"
        )
    return ImageHeader(
        format=ImageFormat.JPEG,
        width=width,
        height=height,
        channels=channels,
        bit_depth=bit_depth,
        orientation=walk.orientation or UPRIGHT,
    )

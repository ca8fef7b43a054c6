"""PNG: the header, the EXIF orientation, whether the file is whole, and the part of it that makes the picture."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import InvalidInput
from service.pipeline.containers.exif import UPRIGHT, read_orientation
from service.pipeline.containers.header import ImageFormat, ImageHeader

SIGNATURE = b"\x89PNG\r\n\x1a\n"

MAX_CHUNKS = 1 << 16
"""Chunks of one file. Encoders write one data chunk per 8 to 64 KB."""

_PICTURE = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_BIT_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_GREY = 0
_MAX_EXTENT = (1 << 31) - 1
_FRAMING_BYTES = 12  # length, kind and checksum around a chunk's content
_CRITICAL = range(ord("A"), ord("Z") + 1)  # an upper-case initial: "do not show the picture without me"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One chunk: where it starts and ends in the file, and its content."""

    kind: bytes
    start: int
    end: int
    content: memoryview


def read_png_header(data: memoryview) -> ImageHeader:
    """The header of a whole PNG file; bytes after its end are ignored.

    Raises:
        InvalidInput: the file is truncated, malformed, or a chunk of the picture fails its checksum.
    """
    chunks = _chunks(data)
    first = next(chunks)
    if first.kind != b"IHDR" or len(first.content) != 13:
        raise InvalidInput(f"the PNG is malformed: its first chunk is {first.kind!r}, not a header of 13 bytes")
    _check(data, first)
    width, height, bit_depth, color_type = _parse_ihdr(first.content)
    orientation, frames, grey, has_data = UPRIGHT, 1, None, False
    for chunk in chunks:
        if chunk.kind in _PICTURE:
            _check(data, chunk)
        if chunk.kind == b"IDAT":
            has_data = True
        elif chunk.kind == b"eXIf":
            orientation = read_orientation(chunk.content)
        elif chunk.kind == b"acTL":
            frames = int.from_bytes(chunk.content[:4], "big")
        elif chunk.kind == b"tRNS" and color_type == _GREY and len(chunk.content) == 2:
            grey = _decoded_grey(int.from_bytes(chunk.content, "big"), bit_depth)
        elif chunk.kind not in _PICTURE and chunk.kind[0] in _CRITICAL:
            raise InvalidInput(
                f"the PNG needs an extension that is not read, chunk {chunk.kind!r}; save it as plain PNG"
            )
    if not has_data:
        raise InvalidInput("the PNG is malformed: it holds no image data")
    return ImageHeader(
        format=ImageFormat.PNG,
        width=width,
        height=height,
        channels=_CHANNELS[color_type],
        bit_depth=bit_depth,
        orientation=orientation,
        is_animated=frames > 1,
        transparent_grey=grey,
    )


def picture_bytes(data: memoryview) -> memoryview:
    """The file without the chunks that do not change the picture: profiles, texts, further frames.

    They are left out because the decoder unpacks some of them, and prints its complaints about them to standard error.

    Args:
        data: a file that `read_png_header` accepted.
    """
    chunks = list(_chunks(data))
    if all(chunk.kind in _PICTURE for chunk in chunks):
        return data[: chunks[-1].end]
    return memoryview(b"".join([SIGNATURE, *(data[c.start : c.end] for c in chunks if c.kind in _PICTURE)]))


def _chunks(data: memoryview) -> Iterator[_Chunk]:
    """Every chunk up to and with IEND."""
    position = len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        length = int.from_bytes(data[position : position + 4], "big")
        end = position + _FRAMING_BYTES + length
        if end > len(data):
            raise InvalidInput(
                f"the PNG is truncated: the chunk at byte {position} does not end within the {len(data)} bytes sent; "
                "send the whole file"
            )
        kind = bytes(data[position + 4 : position + 8])
        yield _Chunk(kind, position, end, data[position + 8 : end - 4])
        if kind == b"IEND":
            return
        position = end
    raise InvalidInput(f"the PNG has more than {MAX_CHUNKS} chunks; save it anew")


def _check(data: memoryview, chunk: _Chunk) -> None:
    if zlib.crc32(data[chunk.start + 4 : chunk.end - 4]) != int.from_bytes(data[chunk.end - 4 : chunk.end], "big"):
        raise InvalidInput(
            f"the PNG is damaged: chunk {chunk.kind!r} at byte {chunk.start} fails its checksum; send the file again"
        )


def _parse_ihdr(content: memoryview) -> tuple[int, int, int, int]:
    """Width, height, bit depth and colour type."""
    width, height = int.from_bytes(content[0:4], "big"), int.from_bytes(content[4:8], "big")
    bit_depth, color_type, compression, row_filter, interlace = content[8:13]
    if not (1 <= width <= _MAX_EXTENT and 1 <= height <= _MAX_EXTENT):
        raise InvalidInput(f"the PNG declares {width} x {height} pixels; both must be 1 to {_MAX_EXTENT}")
    if bit_depth not in _BIT_DEPTHS.get(color_type, ()) or compression or row_filter or interlace > 1:
        raise InvalidInput(
            f"the PNG is malformed: colour type {color_type}, {bit_depth} bits, compression {compression}, "
            f"filter {row_filter} and interlace {interlace} do not go together"
        )
    return width, height, bit_depth, color_type


def _decoded_grey(value: int, bit_depth: int) -> int:
    """A grey sample as the decoder returns it: 16 bits as they are, less stretched to 0-255."""
    highest = (1 << bit_depth) - 1
    return value if bit_depth == 16 else (value & highest) * 255 // highest

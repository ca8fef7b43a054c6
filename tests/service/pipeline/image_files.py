"""Image files made by hand, so that tests can make any part of them wrong."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> Pixels:
    """pixels: uint8[height, width, channels]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def smooth(height: int, width: int) -> Pixels:
    """pixels: uint8[height, width, 3] RGB whose corners all differ, and which lossy formats keep nearly as they are."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red, green = 250 * x / max(1, width - 1), 250 * y / max(1, height - 1)
    return np.stack([red, green, np.full_like(red, 60)], axis=-1).astype(np.uint8)


def encode(extension: str, rgb: Pixels, *parameters: int) -> bytes:
    """An RGB image as a file; WebP and PNG without loss."""
    if extension == ".webp" and not parameters:
        parameters = (cv2.IMWRITE_WEBP_QUALITY, 101)
    is_written, data = cv2.imencode(extension, np.ascontiguousarray(rgb[..., ::-1]), list(parameters))
    assert is_written
    return bytes(data)


def png_chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png(
    rows: list[bytes],
    *,
    width: int,
    bit_depth: int = 8,
    color_type: int = 2,
    before_data: bytes = b"",
    after_data: bytes = b"",
) -> bytes:
    """A PNG of packed rows, with any chunks around its data."""
    header = struct.pack(">IIBBBBB", width, len(rows), bit_depth, color_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            png_chunk(b"IHDR", header),
            before_data,
            png_chunk(b"IDAT", data),
            after_data,
            png_chunk(b"IEND", b""),
        ]
    )


def png_of(samples: npt.NDArray[np.uint8] | npt.NDArray[np.uint16], color_type: int, **chunks: bytes) -> bytes:
    """A PNG of 8- or 16-bit samples [height, width, channels] of the colour type."""
    bit_depth = samples.dtype.itemsize * 8
    rows = [row.astype(samples.dtype.newbyteorder(">")).tobytes() for row in samples]
    return png(rows, width=samples.shape[1], bit_depth=bit_depth, color_type=color_type, **chunks)


def png_claiming(width: int, height: int) -> bytes:
    """A small PNG that declares any size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [png_chunk(b"IHDR", header), png_chunk(b"IDAT", zlib.compress(bytes(1000))), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(orientation: int, order: str = "<", *, kind: int = 3) -> bytes:
    """EXIF data with two entries, the second of them the orientation."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = struct.pack(f"{order}HHIHH", 0x010F, 2, 1, 0, 0) + struct.pack(
        f"{order}HHIHH", 0x0112, kind, 1, orientation, 0
    )
    return mark + struct.pack(f"{order}IH", 8, 2) + entries + struct.pack(f"{order}I", 0)


def jpeg_segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    """The JPEG with a segment right after its start."""
    return jpeg[:2] + jpeg_segment(marker, content) + jpeg[2:]


def with_exif(jpeg: bytes, exif: bytes) -> bytes:
    return with_segment(jpeg, 0xE1, b"Exif\0\0" + exif)


def jpeg_claiming(jpeg: bytes, *, width: int, height: int, bit_depth: int = 8) -> bytes:
    """The JPEG with another size in its frame header."""
    start = next(jpeg.index(bytes([0xFF, code])) for code in (0xC0, 0xC2) if bytes([0xFF, code]) in jpeg)
    return jpeg[: start + 4] + struct.pack(">BHH", bit_depth, height, width) + jpeg[start + 9 :]


def riff_chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_extended(webp: bytes, *, width: int, height: int, flags: int, further: bytes = b"") -> bytes:
    """A simple WebP with an extended header before, and chunks after, its image data."""
    header = struct.pack("<I", flags) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff(riff_chunk(b"VP8X", header), webp[12:], further)

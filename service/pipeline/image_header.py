"""The header of an image file, read from its bytes before anything is decoded.

The format is told from the bytes, never from a content type: clients get the latter wrong. The work is bounded by the
length of the file: no pixel is touched, and segments, scans and chunks are counted.
"""

from __future__ import annotations

from service.errors import InvalidInput, UnsupportedMediaType
from service.pipeline.containers import jpeg, png, webp
from service.pipeline.containers.header import ImageFormat, ImageHeader


def read_image_header(data: bytes | memoryview) -> ImageHeader:
    """Reads the header of a JPEG, PNG or WebP file and checks that the file is whole.

    Raises:
        InvalidInput: no bytes at all, or the file is truncated or malformed.
        UnsupportedMediaType: the bytes are none of the formats.
    """
    view = memoryview(data)
    if view[: len(jpeg.SIGNATURE)] == jpeg.SIGNATURE:
        return jpeg.read_jpeg_header(view)
    if view[: len(png.SIGNATURE)] == png.SIGNATURE:
        return png.read_png_header(view)
    if view[:4] == webp.RIFF_SIGNATURE and view[8:12] == webp.WEBP_SIGNATURE:
        return webp.read_webp_header(view)
    if not view:
        raise InvalidInput("the image is empty: 0 bytes; send the bytes of a JPEG, PNG or WebP file")
    formats = ", ".join(known.value for known in ImageFormat)
    raise UnsupportedMediaType(
        f"the image begins with {bytes(view[:12])!r}, which is none of the formats that can be read: {formats}; "
        "convert it first"
    )

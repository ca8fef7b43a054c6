from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput, UnsupportedMediaType
from service.pipeline.containers.header import ImageFormat, ImageHeader
from service.pipeline.image_header import read_image_header
from tests.service.pipeline.image_files import (
    encode,
    jpeg_claiming,
    jpeg_segment,
    noise,
    png,
    png_chunk,
    png_claiming,
    png_of,
    riff,
    riff_chunk,
    smooth,
    tiff,
    webp_extended,
    with_exif,
    with_segment,
)

IMAGE = smooth(20, 30)
JPEG = encode(".jpg", IMAGE)
PNG = encode(".png", IMAGE)
WEBP = encode(".webp", IMAGE)


def header(file_format: ImageFormat, **properties: int) -> ImageHeader:
    return ImageHeader(
        **({"format": file_format, "width": 30, "height": 20, "channels": 3, "bit_depth": 8} | properties)
    )


LOSSY_WEBP = encode(".webp", IMAGE, 64, 80)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(JPEG, header(ImageFormat.JPEG), id="jpeg"),
        pytest.param(encode(".jpg", IMAGE, 2, 1), header(ImageFormat.JPEG), id="jpeg progressive"),
        pytest.param(JPEG + bytes(500), header(ImageFormat.JPEG), id="jpeg with a tail"),
        pytest.param(JPEG[:2] + b"\xff\xff\xff" + JPEG[2:], header(ImageFormat.JPEG), id="jpeg with filling bytes"),
        pytest.param(with_exif(JPEG, tiff(6)), header(ImageFormat.JPEG, orientation=6), id="jpeg exif"),
        pytest.param(
            with_exif(with_exif(JPEG, tiff(3)), tiff(8)),
            header(ImageFormat.JPEG, orientation=8),
            id="first exif counts",
        ),
        pytest.param(
            with_segment(JPEG, 0xE1, b"http://ns.adobe.com/xap/1.0/\0..."), header(ImageFormat.JPEG), id="APP1 of XMP"
        ),
        pytest.param(PNG, header(ImageFormat.PNG), id="png"),
        pytest.param(PNG + b"tail", header(ImageFormat.PNG), id="png with a tail"),
        pytest.param(png_of(noise(20, 30, 4), 6), header(ImageFormat.PNG, channels=4), id="png rgba"),
        pytest.param(
            png_of(noise(20, 30, 2).astype("u2"), 4), header(ImageFormat.PNG, channels=2, bit_depth=16), id="la16"
        ),
        pytest.param(
            png([bytes(4)] * 20, width=30, bit_depth=1, color_type=0),
            header(ImageFormat.PNG, channels=1, bit_depth=1),
            id="png bilevel",
        ),
        pytest.param(
            png_of(noise(20, 30, 3), 2, before_data=png_chunk(b"eXIf", tiff(5, ">"))),
            header(ImageFormat.PNG, orientation=5),
            id="png exif before data",
        ),
        pytest.param(
            png_of(noise(20, 30, 3), 2, after_data=png_chunk(b"eXIf", tiff(5))),
            header(ImageFormat.PNG, orientation=5),
            id="png exif after data",
        ),
        pytest.param(
            png_of(noise(20, 30, 3), 2, before_data=png_chunk(b"acTL", struct.pack(">II", 1, 0))),
            header(ImageFormat.PNG),
            id="one frame is still",
        ),
        pytest.param(
            png_of(noise(20, 30, 3), 2, before_data=png_chunk(b"acTL", struct.pack(">II", 2, 0))),
            header(ImageFormat.PNG, is_animated=True),
            id="apng",
        ),
        pytest.param(
            png([bytes(15)] * 20, width=30, bit_depth=4, color_type=0, before_data=png_chunk(b"tRNS", b"\0\x03")),
            header(ImageFormat.PNG, channels=1, bit_depth=4, transparent_grey=51),
            id="transparent grey of 4 bits",
        ),
        pytest.param(WEBP, header(ImageFormat.WEBP), id="webp lossless"),
        pytest.param(LOSSY_WEBP, header(ImageFormat.WEBP), id="webp lossy"),
        pytest.param(
            webp_extended(LOSSY_WEBP, width=30, height=20, flags=0x08, further=riff_chunk(b"EXIF", tiff(7))),
            header(ImageFormat.WEBP, orientation=7),
            id="webp exif",
        ),
        pytest.param(
            webp_extended(
                LOSSY_WEBP, width=30, height=20, flags=0x08, further=riff_chunk(b"EXIF", b"Exif\0\0" + tiff(7))
            ),
            header(ImageFormat.WEBP, orientation=7),
            id="webp exif with a prefix",
        ),
        pytest.param(
            webp_extended(LOSSY_WEBP, width=30, height=20, flags=0x12),
            header(ImageFormat.WEBP, is_animated=True, channels=4),
            id="webp animated",
        ),
    ],
)
def test_says_what_the_file_declares(data: bytes, expected: ImageHeader) -> None:
    assert read_image_header(data) == expected
    assert read_image_header(memoryview(data)) == expected


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_reads_every_orientation_in_both_byte_orders(orientation: int, order: str) -> None:
    assert read_image_header(with_exif(JPEG, tiff(orientation, order))).orientation == orientation


@pytest.mark.parametrize(
    "exif",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"II*\0", id="no directory"),
        pytest.param(b"XX*\0" + tiff(6)[4:], id="no byte order"),
        pytest.param(tiff(0), id="below 1"),
        pytest.param(tiff(9), id="above 8"),
        pytest.param(tiff(6, kind=7), id="not a number"),
        pytest.param(tiff(6)[:-10], id="cut in the entry"),
        pytest.param(b"II*\0\xff\xff\xff\xff", id="directory beyond the end"),
        pytest.param(b"II*\0\x08\0\0\0\xff\xff" + bytes(30), id="more entries than bytes"),
    ],
)
def test_damaged_exif_counts_as_upright(exif: bytes) -> None:
    assert read_image_header(with_exif(JPEG, exif)).orientation == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(JPEG[:3], "truncated", id="jpeg signature alone"),
        pytest.param(JPEG[:-2], "truncated", id="jpeg without its end"),
        pytest.param(JPEG[: len(JPEG) // 2], "truncated", id="half a jpeg"),
        pytest.param(JPEG[:2] + b"\xff\xe0\0\x01" + JPEG[2:], "malformed", id="segment shorter than its length"),
        pytest.param(b"\xff\xd8\xff\xd9", "frame header", id="jpeg without a frame"),
        pytest.param(jpeg_claiming(JPEG, width=0, height=5), "at least 1", id="jpeg without width"),
        pytest.param(jpeg_claiming(JPEG, width=5, height=0), "at least 1", id="jpeg without height"),
        pytest.param(jpeg_claiming(JPEG, width=5, height=5, bit_depth=12), "12 bits", id="jpeg of 12 bits"),
        pytest.param(
            with_segment(JPEG, 0xC0, bytes([8, 0, 1, 0, 1, 3])), "more than one frame header", id="jpeg with two frames"
        ),
        pytest.param(with_segment(JPEG, 0xC0, b"\x08"), "6 are needed", id="jpeg with a short frame"),
        pytest.param(
            JPEG[:-2] + 40 * jpeg_segment(0xDA, bytes(6)) + b"\xff\xd9", "more than 32 scans", id="jpeg with many scans"
        ),
        pytest.param(JPEG[:2] + 5000 * b"\xff\xfe\0\x02" + JPEG[2:], "4096", id="jpeg with many segments"),
        pytest.param(PNG[:8], "truncated", id="png signature alone"),
        pytest.param(PNG[:-12], "truncated", id="png without its end"),
        pytest.param(PNG[: len(PNG) // 2], "truncated", id="half a png"),
        pytest.param(PNG[:8] + PNG[33:], "first chunk", id="png without a header"),
        pytest.param(png([], width=30), "0 pixels", id="png without rows"),
        pytest.param(png([bytes(90)], width=30, bit_depth=3), "go together", id="png of 3 bits"),
        pytest.param(png([bytes(90)], width=30, color_type=5), "go together", id="png of no colour type"),
        pytest.param(
            PNG[:8] + png_chunk(b"IHDR", PNG[16:29]) + png_chunk(b"IEND", b""), "no image data", id="png empty"
        ),
        pytest.param(PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], "checksum", id="png damaged"),
        pytest.param(
            png_of(noise(2, 2), 2, before_data=png_chunk(b"CgBI", b"")), "extension", id="png of a phone tool"
        ),
        pytest.param(
            png_of(noise(2, 2), 2, before_data=70_000 * png_chunk(b"tEXt", b"")), "65536", id="png with many chunks"
        ),
        pytest.param(WEBP[:12], "truncated", id="webp signature alone"),
        pytest.param(WEBP[:-1], "truncated", id="webp without its end"),
        pytest.param(riff(), "no image data", id="webp empty"),
        pytest.param(riff(riff_chunk(b"VP8X", bytes(10))), "no image data", id="webp of a header"),
        pytest.param(riff(riff_chunk(b"VP8X", bytes(3))), "10 are needed", id="webp with a short header"),
        pytest.param(riff(riff_chunk(b"VP8 ", bytes(20))), "key frame", id="webp without a key frame"),
        pytest.param(riff(riff_chunk(b"VP8L", bytes(20))), "signature", id="webp without a signature"),
        pytest.param(riff(b"VP8 \xff\xff\xff\0"), "declares 16777215 bytes", id="webp chunk beyond the end"),
        pytest.param(
            riff(riff_chunk(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + bytes(4))), "at least 1", id="webp without width"
        ),
        pytest.param(webp_extended(WEBP, width=31, height=20, flags=0), "canvas", id="webp frame unlike its canvas"),
        pytest.param(riff(5000 * riff_chunk(b"JUNK", b"")), "4096", id="webp with many chunks"),
    ],
)
def test_refuses_what_is_not_whole(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image_header(data)


@pytest.mark.parametrize(
    "data", [b"GIF89a" + bytes(20), b"BM" + bytes(60), b"%PDF-1.7", b"\xff\xd8", b"<svg/>", b"RIFF\0\0\0\0WAVE", b"\0"]
)
def test_names_the_formats_where_it_knows_none(data: bytes) -> None:
    with pytest.raises(UnsupportedMediaType, match="JPEG, PNG, WebP"):
        read_image_header(data)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (70_000, 70_000), (2**31 - 1, 2**31 - 1)])
def test_any_declared_size_costs_nothing(width: int, height: int) -> None:
    assert read_image_header(png_claiming(width, height)).pixels == width * height


@given(st.sampled_from([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x20\0\0\0WEBP"]), st.binary(max_size=200))
def test_any_bytes_after_a_signature_are_read_or_refused(signature: bytes, data: bytes) -> None:
    try:
        found = read_image_header(signature + data)
    except InvalidInput:
        return
    assert found.pixels >= 1

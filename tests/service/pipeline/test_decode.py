from __future__ import annotations

import io
import struct
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import skimage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from service.errors import InvalidInput, PayloadTooLarge, UnsupportedMediaType
from service.pipeline.decode import configure_opencv, decode_image
from tests.service.pipeline.image_files import (
    encode,
    jpeg_claiming,
    noise,
    png,
    png_chunk,
    png_claiming,
    png_of,
    riff_chunk,
    smooth,
    tiff,
    webp_extended,
    with_exif,
    with_segment,
)

MAX_PIXELS = 1_000_000
SAMPLES = Path(skimage.__file__).parent / "data"


@pytest.fixture(autouse=True, scope="module")
def _opencv() -> None:
    configure_opencv()


def decode(data: bytes | memoryview) -> npt.NDArray[np.uint8]:
    return decode_image(data, max_pixels=MAX_PIXELS)


def over_white(color: npt.NDArray[np.uint8], alpha: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The definition, in exact integers, rounded to the nearest."""
    exact = color.astype(np.int64) * alpha + 255 * (255 - alpha.astype(np.int64))
    return ((exact + 127) // 255).astype(np.uint8)


@pytest.mark.parametrize("extension", [".png", ".webp"])
@given(height=st.integers(1, 40), width=st.integers(1, 40))
def test_lossless_files_come_back_as_they_were(extension: str, height: int, width: int) -> None:
    image = noise(height, width, seed=height)
    decoded = decode(encode(extension, image))
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, image)


@pytest.mark.parametrize("parameters", [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)], ids=["baseline", "progressive"])
def test_jpeg_is_rgb(parameters: tuple[int, ...]) -> None:
    image = smooth(48, 64)
    difference = decode(encode(".jpg", image, *parameters)).astype(int) - image
    assert np.abs(difference).max() <= 12


def test_views_of_a_body_decode_without_a_copy() -> None:
    image = noise(5, 7)
    body = b"head" + encode(".png", image) + b"tail"
    np.testing.assert_array_equal(decode(memoryview(body)[4:-4]), image)


# Orientation: the names of the corners, clockwise from the top left, as they are stored for an upright picture.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),  # shown turned clockwise, so stored turned counter-clockwise
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpeg_is_turned_upright_once(orientation: int, order: str) -> None:
    upright = smooth(32, 48)
    data = with_exif(
        encode(".jpg", STORED[orientation](upright), cv2.IMWRITE_JPEG_QUALITY, 98), tiff(orientation, order)
    )
    decoded = decode(data)
    assert decoded.shape == upright.shape
    assert np.abs(decoded.astype(int) - upright).max() <= 8


@pytest.mark.parametrize("orientation", range(1, 9))
def test_png_and_webp_are_turned_upright_once(orientation: int) -> None:
    upright = noise(6, 9)
    stored = np.ascontiguousarray(STORED[orientation](upright))
    height, width, _ = stored.shape
    png_file = png_of(stored, 2, after_data=png_chunk(b"eXIf", tiff(orientation)))
    webp_file = webp_extended(
        encode(".webp", stored), width=width, height=height, flags=0x08, further=riff_chunk(b"EXIF", tiff(orientation))
    )
    np.testing.assert_array_equal(decode(png_file), upright)
    np.testing.assert_array_equal(decode(webp_file), upright)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_agrees_with_pillow(orientation: int) -> None:
    from PIL import ImageOps

    data = with_exif(encode(".jpg", smooth(32, 48)), tiff(orientation))
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert np.abs(decode(data).astype(int) - expected).max() <= 4


def test_grey_becomes_three_equal_channels() -> None:
    grey = noise(9, 11, 1)
    expected = np.repeat(grey, 3, axis=2)
    np.testing.assert_array_equal(decode(png_of(grey, 0)), expected)
    jpeg = bytes(cv2.imencode(".jpg", grey)[1])
    decoded = decode(jpeg)
    assert decoded.shape == (9, 11, 3)
    assert (decoded == decoded[..., :1]).all()


@pytest.mark.parametrize("bit_depth", [1, 2, 4])
def test_few_bits_of_grey_are_stretched(bit_depth: int) -> None:
    packed = noise(5, 2 * bit_depth, 1)[..., 0]
    values = np.unpackbits(packed, axis=1).reshape(5, 16, bit_depth) @ (1 << np.arange(bit_depth)[::-1])
    decoded = decode(png([row.tobytes() for row in packed], width=16, bit_depth=bit_depth, color_type=0))
    np.testing.assert_array_equal(decoded[..., 0], values * 255 // ((1 << bit_depth) - 1))


def test_every_alpha_over_white_is_rounded_to_the_nearest() -> None:
    color, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    rgba = np.stack([color, color[:, ::-1], 255 - color, alpha], axis=-1)
    np.testing.assert_array_equal(decode(png_of(rgba, 6)), over_white(rgba[..., :3], rgba[..., 3:]))


@given(height=st.integers(1, 300), width=st.integers(1, 5))
def test_alpha_of_any_size(height: int, width: int) -> None:
    rgba = noise(height, width, 4, seed=width)
    np.testing.assert_array_equal(decode(png_of(rgba, 6)), over_white(rgba[..., :3], rgba[..., 3:]))


def test_grey_with_alpha() -> None:
    samples = noise(7, 8, 2)
    grey = np.repeat(samples[..., :1], 3, axis=2)
    np.testing.assert_array_equal(decode(png_of(samples, 4)), over_white(grey, samples[..., 1:]))


def test_webp_with_alpha() -> None:
    rgba = noise(7, 8, 4)
    data = bytes(cv2.imencode(".webp", rgba[..., [2, 1, 0, 3]], [cv2.IMWRITE_WEBP_QUALITY, 101])[1])
    visible = rgba[..., 3] > 0  # a lossless encoder may change colours that nobody sees
    np.testing.assert_array_equal(decode(data)[visible], over_white(rgba[..., :3], rgba[..., 3:])[visible])


@pytest.mark.parametrize("color_type", [0, 2, 4, 6])
def test_16_bits_are_scaled_to_8(color_type: int) -> None:
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color_type]
    samples = np.random.default_rng(1).integers(0, 65536, (9, 10, channels), dtype=np.uint16)
    if channels in (2, 4):
        samples[..., -1] = 65535
    expected = np.rint(samples / 257).astype(np.uint8)
    color = expected[..., : 3 if channels >= 3 else 1]
    np.testing.assert_array_equal(decode(png_of(samples, color_type)), np.broadcast_to(color, (9, 10, 3)))


@pytest.mark.parametrize("bit_depth", [1, 2, 4, 8])
@pytest.mark.parametrize("has_alpha", [False, True], ids=["opaque", "transparent"])
def test_palette(bit_depth: int, has_alpha: bool) -> None:
    palette = noise(1 << bit_depth, 1)[:, 0]
    alpha = np.full((1 << bit_depth, 1), 255, np.uint8)
    chunks = png_chunk(b"PLTE", palette.tobytes())
    if has_alpha:
        alpha[:2, 0] = (0, 100)
        chunks += png_chunk(b"tRNS", bytes([0, 100]))
    packed = noise(5, 2 * bit_depth, 1, seed=3)[..., 0]
    index = np.unpackbits(packed, axis=1).reshape(5, 16, bit_depth) @ (1 << np.arange(bit_depth)[::-1])
    data = png([row.tobytes() for row in packed], width=16, bit_depth=bit_depth, color_type=3, before_data=chunks)
    np.testing.assert_array_equal(decode(data), over_white(palette, alpha)[index])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_one_transparent_grey_is_white(dtype: type[np.uint8] | type[np.uint16]) -> None:
    samples = np.array([[[7], [8], [9]]], dtype)
    data = png_of(samples, 0, before_data=png_chunk(b"tRNS", b"\0\x08"))
    opaque = decode(png_of(samples, 0))
    expected = opaque.copy()
    expected[0, 1] = 255
    np.testing.assert_array_equal(decode(data), expected)


def test_one_transparent_color_is_white() -> None:
    samples = noise(4, 5)
    key = b"".join(bytes([0, value]) for value in samples[2, 3])
    expected = samples.copy()
    expected[2, 3] = 255
    np.testing.assert_array_equal(decode(png_of(samples, 2, before_data=png_chunk(b"tRNS", key))), expected)


@pytest.mark.parametrize("has_adobe_marker", [True, False])
def test_cmyk_agrees_with_pillow(has_adobe_marker: bool) -> None:
    buffer = io.BytesIO()
    Image.fromarray(smooth(32, 48)).convert("CMYK").save(buffer, "JPEG", quality=95)
    data = buffer.getvalue()
    if not has_adobe_marker:
        start = data.index(b"\xff\xee")
        data = data[:start] + data[start + 2 + struct.unpack_from(">H", data, start + 2)[0] :]
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.abs(decode(data).astype(int) - expected).max() <= 3


@pytest.mark.parametrize("name", ["page.png", "text.png", "astronaut.png", "horse.png", "logo.png", "rocket.jpg"])
def test_real_files_agree_with_pillow(name: str) -> None:
    image = Image.open(SAMPLES / name).convert("RGBA")
    page = Image.new("RGBA", image.size, "white")
    expected = np.asarray(Image.alpha_composite(page, image).convert("RGB"))
    difference = np.abs(decode((SAMPLES / name).read_bytes()).astype(int) - expected)
    assert difference.max() <= (4 if name.endswith("jpg") else 1)


def _animated(file_format: str) -> bytes:
    frames = [Image.fromarray(noise(8, 8, seed=seed)) for seed in range(2)]
    buffer = io.BytesIO()
    frames[0].save(buffer, file_format, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


@pytest.mark.parametrize("file_format", ["WEBP", "PNG"])
def test_animated_images_are_refused(file_format: str) -> None:
    with pytest.raises(InvalidInput, match="animated"):
        decode(_animated(file_format))


IMAGE = smooth(24, 20)
FILES = {
    "jpeg": encode(".jpg", IMAGE),
    "jpeg progressive": encode(".jpg", IMAGE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "jpeg exif": with_exif(encode(".jpg", IMAGE), tiff(6)),
    "png": encode(".png", IMAGE),
    "png alpha": png_of(noise(24, 20, 4), 6),
    "webp lossless": encode(".webp", IMAGE),
    "webp lossy": encode(".webp", IMAGE, cv2.IMWRITE_WEBP_QUALITY, 80),
}


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_refused(name: str) -> None:
    data = FILES[name]
    for length in range(len(data)):
        with pytest.raises((InvalidInput, UnsupportedMediaType)):
            decode(data[:length])


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_gives_a_picture_or_a_client_error(name: str) -> None:
    data = bytearray(FILES[name])
    for offset in range(min(len(data), 700)):
        for bit in range(8):
            data[offset] ^= 1 << bit
            _decode_or_refuse(bytes(data))
            data[offset] ^= 1 << bit


@given(st.sampled_from(list(FILES.values())), st.data())
def test_any_damage_gives_a_picture_or_a_client_error(file: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(file)))
    length = data.draw(st.integers(0, 40))
    _decode_or_refuse(file[:start] + data.draw(st.binary(max_size=40)) + file[start + length :])


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((InvalidInput, UnsupportedMediaType)):
        decode(data)


def _decode_or_refuse(data: bytes) -> None:
    try:
        image = decode(data)
    except (InvalidInput, PayloadTooLarge, UnsupportedMediaType):
        return
    assert image.shape[0] * image.shape[1] <= MAX_PIXELS
    assert image.shape[2:] == (3,)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png_claiming(1001, 1000), id="png"),
        pytest.param(png_claiming(2**31 - 1, 2**31 - 1), id="huge png"),
        pytest.param(jpeg_claiming(FILES["jpeg"], width=65535, height=65535), id="jpeg"),
        pytest.param(jpeg_claiming(FILES["jpeg progressive"], width=65535, height=65535), id="jpeg progressive"),
        pytest.param(
            webp_extended(b"RIFF0000WEBP", width=16384, height=16384, flags=2), id="webp by its canvas, animated"
        ),
    ],
)
def test_too_many_pixels_are_refused_by_the_header(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("the decoder must not see it"))
    with pytest.raises(PayloadTooLarge, match=r"at most 1000000 are allowed.*INFERLANE_MAX_IMAGE_PIXELS"):
        decode(data)


def test_the_pixel_limit_itself_is_allowed() -> None:
    data = encode(".png", noise(10, 10))
    assert decode_image(data, max_pixels=100).shape == (10, 10, 3)
    with pytest.raises(PayloadTooLarge):
        decode_image(data, max_pixels=99)


def test_short_data_behind_a_valid_header_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be decoded"):
        decode(png_claiming(500, 500))


def test_profiles_and_damage_leave_standard_error_silent(capfd: pytest.CaptureFixture[str]) -> None:
    decode((SAMPLES / "page.png").read_bytes())  # holds a colour profile that libpng complains about
    decode(png_of(noise(4, 4), 2, before_data=png_chunk(b"iCCP", b"x\0\0damaged") + png_chunk(b"gAMA", b"")))
    for data in (FILES["jpeg"], FILES["png"], FILES["webp lossy"]):
        with pytest.raises(InvalidInput):
            decode(data[: len(data) // 2])
    assert capfd.readouterr().err == ""


def test_configured_opencv_uses_the_calling_thread_alone() -> None:
    assert cv2.getNumThreads() == 1


def test_segments_of_other_makers_do_not_matter() -> None:
    plain = FILES["jpeg"]
    decorated = with_segment(with_segment(plain, 0xE2, b"ICC_PROFILE\0\x01\x01" + bytes(range(50))), 0xFE, b"comment")
    np.testing.assert_array_equal(decode(decorated), decode(plain))

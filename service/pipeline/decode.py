"""Image files in, upright RGB pixels out: a right picture or a clear refusal, never half a picture.

Everything that can be known from the header is checked before OpenCV sees a byte: the pixel count, so that a small
file cannot become a large allocation, and that the file is whole, because some versions of OpenCV fill up what is
missing of a truncated JPEG without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput, PayloadTooLarge
from service.pipeline.containers.header import ImageFormat, ImageHeader
from service.pipeline.containers.png import picture_bytes
from service.pipeline.image_header import read_image_header

if TYPE_CHECKING:
    from cv2.typing import MatLike

RgbImage = npt.NDArray[np.uint8]
"""image: uint8[H, W, 3] in host memory, RGB, C-contiguous, upright."""

_BAND_ROWS = 128  # of an image with alpha: its intermediates stay in the cache, and small for any image


def configure_opencv() -> None:
    """Makes OpenCV work on the calling thread alone and log nothing. Call once, before the first image.

    What libjpeg writes about damaged data goes past OpenCV's log to the process's standard error, a line a file; the
    only way to stop that, to redirect the descriptor, would swallow what other threads write.
    The thread pool that decodes already uses every core; OpenCV's own threads would only contend with it.
    """
    cv2.setNumThreads(1)
    if hasattr(cv2, "setLogLevel"):  # OpenCV 4; 5 moved it
        cv2.setLogLevel(0)
    else:
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def decode_image(data: bytes | memoryview, *, max_pixels: int) -> RgbImage:
    """Decodes a JPEG, PNG or WebP file; releases the GIL for most of the time.

    Grey becomes three equal channels, alpha is composited over white, 16 bits are scaled to 8, CMYK is converted
    without its colour profile, and the EXIF orientation is applied.

    Args:
        data: the whole file.
        max_pixels: largest width times height.

    Returns:
        image: uint8[H, W, 3] in host memory, RGB, C-contiguous.

    Raises:
        InvalidInput: the file is empty, truncated, damaged or animated.
        PayloadTooLarge: the file declares more than `max_pixels`.
        UnsupportedMediaType: the bytes are none of the formats.
    """
    header = read_image_header(data)
    if header.pixels > max_pixels:
        raise PayloadTooLarge(
            f"the image has {header.width} x {header.height} = {header.pixels} pixels, at most {max_pixels} are "
            "allowed; scale it down, or raise INFERLANE_MAX_IMAGE_PIXELS"
        )
    if header.is_animated:
        raise InvalidInput(f"the {header.format.value} is animated, a still image is needed; send one frame")
    rgb = _to_rgb(_decode_stored(memoryview(data), header), header)
    return np.asarray(_upright(rgb, header.orientation), np.uint8)


def _decode_stored(view: memoryview, header: ImageHeader) -> MatLike:
    """Samples as stored: [H, W] grey, [H, W, 3] BGR or [H, W, 4] BGRA."""
    encoded = picture_bytes(view) if header.format is ImageFormat.PNG else view
    try:
        # "Unchanged" is the one mode in which OpenCV neither applies the orientation nor drops alpha or depth.
        stored = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        stored = None
    if stored is None or stored.shape[:2] != (header.height, header.width):
        raise InvalidInput(
            f"the {header.format.value} of {header.width} x {header.height} pixels cannot be decoded: its data "
            "is damaged, or uses a rare variant of the format; save it anew and send it again"
        )
    return stored


def _to_rgb(stored: MatLike, header: ImageHeader) -> MatLike:
    if header.transparent_grey is not None:
        stored[stored == header.transparent_grey] = 65535 if stored.dtype == np.uint16 else 255
    samples = cv2.convertScaleAbs(stored, alpha=255 / 65535) if stored.dtype == np.uint16 else stored
    if samples.ndim == 2:
        return cv2.cvtColor(samples, cv2.COLOR_GRAY2RGB)
    if samples.shape[2] == 3:
        return cv2.cvtColor(samples, cv2.COLOR_BGR2RGB, dst=samples)
    return _over_white(samples)


def _over_white(bgra: MatLike) -> MatLike:
    """Straight alpha over a white page: round(color * alpha / 255) + 255 - alpha."""
    rgb = np.empty((*bgra.shape[:2], 3), np.uint8)
    for top in range(0, len(bgra), _BAND_ROWS):
        band, target = bgra[top : top + _BAND_ROWS], rgb[top : top + _BAND_ROWS]
        alpha = cv2.cvtColor(cv2.extractChannel(band, 3), cv2.COLOR_GRAY2RGB)
        cv2.cvtColor(band, cv2.COLOR_BGRA2RGB, dst=target)
        cv2.multiply(target, alpha, dst=target, scale=1 / 255)
        cv2.add(target, cv2.bitwise_not(alpha), dst=target)
    return rgb


def _upright(image: MatLike, orientation: int) -> MatLike:
    """Undoes an EXIF orientation: 2-4 mirror or turn by 180 degrees, 5-8 swap the axes as well."""
    match orientation:
        case 2:
            return cv2.flip(image, 1)
        case 3:
            return cv2.rotate(image, cv2.ROTATE_180)
        case 4:
            return cv2.flip(image, 0)
        case 5:
            return cv2.transpose(image)
        case 6:
            return cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE)
        case 7:
            return cv2.rotate(cv2.transpose(image), cv2.ROTATE_180)
        case 8:
            return cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE)
        case _:
            return image

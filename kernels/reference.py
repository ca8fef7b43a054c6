"""What the kernels must compute, in NumPy: written to be read and believed, not to be fast.

The tests hold the device functions, and on a GPU the kernels, against these; and these against OpenCV and the
server's own CPU path where those say what is right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_WEIGHT_ONE = 2048


def taps(scaled: int, extent: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Per output: the first of two neighbouring inputs (-1 to extent - 1) and the second one's 11-bit weight.

    Sampling at (i + 0.5) * extent / scaled - 0.5, in FP32, as OpenCV's INTER_LINEAR does.
    """
    numerator = (2 * np.arange(scaled, dtype=np.int64) + 1) * extent - scaled
    position = numerator.astype(np.float32) / np.float32(2 * scaled)
    first = np.floor(position)
    weight = np.rint((position - first) * np.float32(_WEIGHT_ONE))
    return first.astype(np.int64), weight.astype(np.int64)


def resize_linear(image: Image, height: int, width: int) -> Image:
    """OpenCV's INTER_LINEAR for 8-bit images, bit for bit.

    Args:
        image: uint8[H, W, C].
        height: of the result, in pixels.
        width: of the result.

    Returns:
        uint8[height, width, C].
    """
    rows, columns = image.shape[:2]
    first, weight = taps(width, columns)
    weight = np.where((first < 0) | (first >= columns - 1), 0, weight)
    first = np.clip(first, 0, columns - 1)
    second = np.minimum(first + 1, columns - 1)
    left, right = image[:, first].astype(np.int64), image[:, second].astype(np.int64)
    sums = left * (_WEIGHT_ONE - weight)[:, None] + right * weight[:, None]
    first, weight = taps(height, rows)
    upper, lower = sums[np.clip(first, 0, rows - 1)] >> 4, sums[np.clip(first + 1, 0, rows - 1)] >> 4
    weight = weight[:, None, None]
    blended = ((((_WEIGHT_ONE - weight) * upper) >> 16) + ((weight * lower) >> 16) + 2) >> 2
    resized: Image = np.clip(blended, 0, 255).astype(np.uint8)
    return resized


def rgb_from_nv12(luma: Image, chroma: Image) -> Image:
    """BT.601, limited range, in 20-bit fixed point, as OpenCV's COLOR_YUV2RGB_NV12.

    Args:
        luma: uint8[H, W], H and W even.
        chroma: uint8[H / 2, W / 2, 2], U and V.

    Returns:
        uint8[H, W, 3] RGB.
    """
    full = chroma.astype(np.int64).repeat(2, axis=0).repeat(2, axis=1) - 128
    u, v = full[..., 0], full[..., 1]
    scaled = np.maximum(luma.astype(np.int64) - 16, 0) * 1220542 + (1 << 19)
    channels = (scaled + 1673527 * v, scaled - 852492 * v - 409993 * u, scaled + 2116026 * u)
    rgb: Image = np.clip(np.stack(channels, axis=-1) >> 20, 0, 255).astype(np.uint8)
    return rgb


def place(scaled: Image, top: int, left: int, canvas: Image) -> None:
    """Puts an image on a canvas of uint8[H, W, 3], in place; what reaches beyond it is cropped."""
    height, width = canvas.shape[:2]
    shown = scaled[max(0, -top) :, max(0, -left) :]
    row, column = max(0, top), max(0, left)
    shown = shown[: max(0, height - row), : max(0, width - column)]
    canvas[row : row + shown.shape[0], column : column + shown.shape[1]] = shown


def normalise(canvas: Image, factor: tuple[float, ...], offset: tuple[float, ...]) -> Floats:
    """uint8[H, W, 3] in the model's channel order becomes FP32[3, H, W]: value * factor + offset."""
    values = canvas.transpose(2, 0, 1).astype(np.float64)
    scale, shift = (np.array(figures, np.float32)[:, None, None] for figures in (factor, offset))
    normalised: Floats = (values * scale + shift).astype(np.float32)
    return normalised

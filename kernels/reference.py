"""What the kernels must compute, in NumPy: written to be read and believed, not to be fast.

The tests hold the device functions, and on a GPU the kernels, against these; and these against OpenCV and the
server's own CPU path where those say what is right.
"""

from __future__ import annotations

from itertools import pairwise

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


def classify(scores: Floats, top_k: int) -> tuple[Floats, npt.NDArray[np.int32]]:
    """The likeliest classes of every row: see `classify.prepare_classify`.

    Args:
        scores: FP32[N, C].
        top_k: at most C.

    Returns:
        Probabilities FP32[N, top_k], descending, and class indices INT32[N, top_k].
    """
    best = np.full((len(scores), top_k), np.nan, np.float32)
    indices = np.full((len(scores), top_k), -1, np.int32)
    for row, place in zip(scores.astype(np.float64), range(len(scores)), strict=True):
        if np.isnan(row).any() or np.isposinf(row).any() or np.isneginf(row).all():
            continue
        exponentials = np.exp(row - row.max())
        is_distribution = row.min() >= 0 and abs(row.sum() - 1) <= 1e-3
        probabilities = row if is_distribution else exponentials / exponentials.sum()
        order = np.argsort(-row, kind="stable")[:top_k]
        best[place], indices[place] = probabilities[order], order
    return best, indices


def embed(hidden: Floats, mask: npt.NDArray[np.int32], *, is_normalized: bool) -> Floats:
    """The mean of every row's unmasked tokens, at length 1 if asked: see `embed.prepare_embed`.

    Args:
        hidden: FP32[N, S, D].
        mask: INT32[N, S].
        is_normalized: whether to bring the vectors to length 1.

    Returns:
        FP32[N, D].
    """
    vectors = np.zeros((hidden.shape[0], hidden.shape[2]))
    for vector, tokens, counts in zip(vectors, hidden, mask != 0, strict=True):
        if counts.any():
            vector[:] = tokens[counts].astype(np.float64).mean(axis=0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = (vectors / np.where((lengths < 1e-12) | (not is_normalized), 1, lengths)).astype(np.float32)
    return scaled


def pad(
    tokens: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], width: int, pad_token: int
) -> npt.NDArray[np.int64]:
    """Token rows laid out, and their mask: see `pad.prepare_pad`.

    Returns:
        INT64[2, N, width]: ids and mask.
    """
    batch = np.zeros((2, len(starts) - 1, width), np.int64)
    batch[0] = pad_token
    for index, (start, end) in enumerate(pairwise(starts)):
        row = tokens[start:end][:width]
        batch[0, index, : len(row)], batch[1, index, : len(row)] = row, 1
    return batch


def layernorm(rows: Floats, residual: Floats, gamma: Floats, beta: Floats, epsilon: float) -> Floats:
    """(rows + residual) normalised over the last dimension; FP32 [R, D] twice, [D] twice; FP32[R, D]."""
    total = rows.astype(np.float64) + residual
    centred = total - total.mean(axis=1, keepdims=True)
    scale = np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
    normalised: Floats = (centred / scale * gamma + beta).astype(np.float32)
    return normalised

"""Figures in answers, as exact as they mean something: a hundredth of a pixel, a ten-thousandth of a probability."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PIXEL_DECIMALS = 2
SCORE_DECIMALS = 4


def rounded_pixels(places: npt.NDArray[np.float32]) -> list[list[float]]:
    """Places in pixels, FP32[any, any], as JSON shall show them."""
    rounded: list[list[float]] = places.astype(np.float64).round(PIXEL_DECIMALS).tolist()
    return rounded

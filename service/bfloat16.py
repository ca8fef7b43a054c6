"""BF16 on the host: NumPy has no such type, so the values travel as their upper 16 bits in uint16."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def bfloat16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The BF16 bits of float32 values, rounded to nearest even; NaN stays NaN. Same shape."""
    bits: npt.NDArray[np.uint32] = np.asarray(values, np.float32).view(np.uint32)
    half_or_just_below = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet_nan = bits | np.uint32(0x400000)
    upper_bits: npt.NDArray[np.uint32] = np.where(np.isnan(values), quiet_nan, bits + half_or_just_below)
    upper_bits >>= np.uint32(16)
    return upper_bits.astype(np.uint16)


def bfloat16_values(bits: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """The float32 values of BF16 bits (uint16); exact. Same shape."""
    upper_bits: npt.NDArray[np.uint32] = bits.astype(np.uint32) << np.uint32(16)
    return upper_bits.view(np.float32)

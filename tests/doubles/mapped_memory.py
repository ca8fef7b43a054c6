"""Host memory that shares its pages with nothing else, as shared memory does."""

from __future__ import annotations

import mmap

import numpy as np


def mapped(nbytes: int) -> np.ndarray:
    """Zeros on pages of their own, as shared memory is: `uint8[nbytes]`."""
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)

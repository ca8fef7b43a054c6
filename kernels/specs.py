"""What host and device agree on: the sources, their entry points, and the structures that both sides read.

Sizes that a source and its launcher share are passed as arguments or stated here and held against the source by a
test, never repeated silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

SOURCE_FOLDER = Path(__file__).with_name("csrc")

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""What every source must compile for: Turing, Ampere, Ada, Hopper and both Blackwells."""

SOURCES = {
    "preprocess": ("preprocess_fp16", "preprocess_fp32"),
    "classify": ("classify_fp16", "classify_fp32"),
    "embed": ("embed_fp16", "embed_fp32"),
    "pad": ("pad_int32", "pad_int64"),
    "fill": ("fill_bytes",),
    "detect": tuple(
        f"detect_{step}_{layout}_{dtype}"
        for step in ("decode", "select")
        for layout in ("yolov5", "yolov8")
        for dtype in ("fp16", "fp32")
    ),
    "layernorm": ("layernorm_fp16", "layernorm_fp32"),
    "peaks": ("peak_copy", "peak_fma", "gemm_naive", "gemm_tiled"),
    "gemm_wgmma": ("gemm_wgmma",),
}
"""Entry points by source: the name of a file in `csrc` without its ending."""

_OF_ONE_ARCHITECTURE = {"gemm_wgmma": "sm_90a"}
"""Sources whose instructions one architecture alone has, and never a later one."""


def target_of(source: str, architecture: str) -> str | None:
    """What a source is compiled for, for devices of an architecture such as `sm_90`; None if it is not for them."""
    only = _OF_ONE_ARCHITECTURE.get(source)
    if only is None:
        return architecture
    return only if only == f"{architecture}a" else None


@dataclass(frozen=True, slots=True)
class Geometry:
    """A launch's grid and block, in blocks and threads along x, y and z."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


class PixelFormat(IntEnum):
    """How an image lies in memory: packed 8-bit channels, or NV12 (a luma plane, then U and V of 2 x 2 pixels)."""

    RGB = 0
    BGR = 1
    NV12 = 2


IMAGE = np.dtype(
    {
        "names": [
            "pixels",
            "chroma",
            "height",
            "width",
            "pitch_bytes",
            "chroma_pitch_bytes",
            "format",
            "top",
            "left",
            "scaled_height",
            "scaled_width",
        ],
        "formats": [np.uint64, np.uint64, *[np.int32] * 9],
        "offsets": [0, 8, 16, 20, 24, 28, 32, 36, 40, 44, 48],
        "itemsize": 64,
    }
)
"""One image of a batch for `preprocess`, and its place on the canvas; `struct Image` in `csrc/preprocess.cuh`.

`pixels` is the device address of the top left byte of what is scaled; the memory is readable from there, rounded down
to a multiple of 4, to the last pixel, rounded up to one, and so is `chroma`. An entry of zeros gives a row of the pad
value alone.
"""

MAX_IMAGE_SIDE = 65535
MAX_CANVAS_SIDE = 16384
"""Pixels up to which sampling positions fit the integers they are computed in."""


MAX_IMAGE_BYTES = 1 << 32
"""What a place within an image is counted in."""


def ceil_div(count: int, size: int) -> int:
    """How many pieces of `size` cover `count`."""
    return -(-count // size)

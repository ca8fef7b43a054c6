"""Launches `preprocess`: images of any sizes, described in device memory, become the rows of a model's input."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import IMAGE, MAX_CANVAS_SIDE, MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, Geometry, PixelFormat, ceil_div
from service.cards import PreprocessCard
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

BLOCK = (64, 2, 1)
COLUMNS_PER_THREAD = 2
ROWS_PER_THREAD = 4
"""As in `csrc/preprocess.cu`."""


class NormalisationArgument(ctypes.Structure):
    """`struct Normalisation` of `csrc/preprocess.cu`."""

    _fields_ = (
        ("factor", ctypes.c_float * 3),
        ("offset", ctypes.c_float * 3),
        ("is_bgr", ctypes.c_int),
        ("pad_value", ctypes.c_int),
    )


@dataclass(frozen=True, slots=True)
class Normalisation:
    """`value * factor + offset` per channel in the model's order, of 8-bit values.

    Attributes:
        factor: per channel.
        offset: per channel.
        is_bgr: whether the model's first channel is blue.
        pad_value: 0-255 value of the canvas where no image is.
    """

    factor: tuple[float, float, float]
    offset: tuple[float, float, float]
    is_bgr: bool
    pad_value: int

    @classmethod
    def from_card(cls, card: PreprocessCard) -> Normalisation:
        """`(value * scale - mean) / std`, brought to one multiplication and one addition."""
        return cls(
            factor=(card.scale / card.std[0], card.scale / card.std[1], card.scale / card.std[2]),
            offset=(-card.mean[0] / card.std[0], -card.mean[1] / card.std[1], -card.mean[2] / card.std[2]),
            is_bgr=card.color == "bgr",
            pad_value=card.pad_value,
        )


@dataclass(frozen=True, slots=True)
class SourceImage:
    """The part of an image that is scaled, in device memory.

    The memory is readable from `address`, rounded down to a multiple of 4, to the last pixel, rounded up to one; the
    same holds of an NV12 image's chroma samples.

    Attributes:
        address: of its top left pixel.
        height: pixels; even for NV12.
        width: pixels; even for NV12.
        pitch_bytes: from one row to the next.
        format: how its pixels lie.
        chroma_address: NV12: of the U and V samples of the top left pixel. Their rows have the same pitch.
    """

    address: int
    height: int
    width: int
    pitch_bytes: int
    format: PixelFormat = PixelFormat.RGB
    chroma_address: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the scaled image lies on the canvas, in pixels; it may reach beyond the canvas, and is cropped there."""

    top: int
    left: int
    height: int
    width: int


def image_entry(image: SourceImage, placement: Placement) -> npt.NDArray[np.void]:
    """The entry of `specs.IMAGE` for one image, of no dims; the caller copies it into the batch's descriptors.

    Raises:
        DeviceError: a size is not one that the kernel can work with.
    """
    sides = (image.height, image.width)
    scaled = (placement.height, placement.width)
    if min(*sides, *scaled) < 1 or max(sides) > MAX_IMAGE_SIDE or max(scaled) > MAX_CANVAS_SIDE:
        raise DeviceError(
            f"an image of {image.height} x {image.width} pixels was to be scaled to {placement.height} x "
            f"{placement.width}; sides of 1 to {MAX_IMAGE_SIDE} and scaled sides of 1 to {MAX_CANVAS_SIDE} are allowed"
        )
    is_nv12 = image.format is PixelFormat.NV12
    if is_nv12 and (image.height % 2 or image.width % 2 or not image.chroma_address):
        raise DeviceError(
            f"an NV12 image of {image.height} x {image.width} pixels, chroma at {image.chroma_address:#x}, was given; "
            "its sides must be even and its chroma plane must be named"
        )
    row_bytes = image.width * (1 if is_nv12 else 3)
    if image.pitch_bytes < row_bytes or image.height * image.pitch_bytes >= MAX_IMAGE_BYTES:
        raise DeviceError(
            f"{image.height} rows of {row_bytes} bytes were said to lie {image.pitch_bytes} bytes apart; they may not "
            f"overlap, nor reach over {MAX_IMAGE_BYTES} bytes"
        )
    entry = np.zeros((), IMAGE)
    entry["pixels"], entry["chroma"] = image.address, image.chroma_address
    entry["height"], entry["width"] = sides
    entry["pitch_bytes"] = entry["chroma_pitch_bytes"] = image.pitch_bytes
    entry["format"] = image.format
    entry["top"], entry["left"] = placement.top, placement.left
    entry["scaled_height"], entry["scaled_width"] = scaled
    return entry


def describe_images(entries: Sequence[npt.NDArray[np.void]]) -> npt.NDArray[np.uint8]:
    """The descriptors of a batch as the kernel reads them, for the copy to the device.

    Args:
        entries: of `image_entry`, in the order of the rows; zeros for a row of the pad value alone.

    Returns:
        UINT8[N, 64].
    """
    descriptors = np.zeros(len(entries), IMAGE)
    for index, entry in enumerate(entries):
        descriptors[index] = entry
    return descriptors.view(np.uint8).reshape(len(entries), IMAGE.itemsize)


def prepare_preprocess(
    kernels: Kernels, images: DeviceTensor, rows: DeviceTensor, normalisation: Normalisation, *, stream: Stream
) -> PreparedCall:
    """The launch that fills `rows` from whatever `images` describes when it runs.

    Args:
        kernels: hold the source `preprocess`.
        images: UINT8[N, 64] device, N entries of `specs.IMAGE`, at an address that is a multiple of 8.
        rows: FP16 or FP32 [N, 3, H, W] device, NCHW; overwritten.
        normalisation: what becomes of the 8-bit values.
        stream: what orders it.

    Raises:
        DeviceError: an argument is not as said.
    """
    require_tensor("rows", rows, (DType.FP16, DType.FP32), (None, 3, None, None), kernels=kernels)
    size, _, height, width = rows.shape
    require_tensor("images", images, (DType.UINT8,), (size, IMAGE.itemsize), kernels=kernels)
    if images.address % 8:
        raise DeviceError(f"'images' begins at address {images.address:#x}; its entries need a multiple of 8")
    if max(height, width) > MAX_CANVAS_SIDE:
        raise DeviceError(f"'rows' are of {height} x {width} pixels; the kernel makes at most {MAX_CANVAS_SIDE} a side")
    entry = "preprocess_fp16" if rows.dtype is DType.FP16 else "preprocess_fp32"
    grid = (
        ceil_div(width, BLOCK[0] * COLUMNS_PER_THREAD),
        ceil_div(height, BLOCK[1] * ROWS_PER_THREAD),
        size,
    )
    arguments = (
        *pointers(images, rows),
        ctypes.c_int(height),
        ctypes.c_int(width),
        NormalisationArgument(
            (ctypes.c_float * 3)(*normalisation.factor),
            (ctypes.c_float * 3)(*normalisation.offset),
            normalisation.is_bgr,
            normalisation.pad_value,
        ),
    )
    return kernels.prepare(entry, Geometry(grid, BLOCK), arguments, stream=stream)

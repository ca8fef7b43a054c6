"""An RGB image of any size becomes one row of the model's input.

Resizing happens on 8-bit values, as the reference pipelines of the field do it; the arithmetic
`(pixel * scale - mean) / std` happens in FP32, once for each of the 256 values a channel can have, at load time.
A request then costs a resize and one table look-up per sample, written straight into its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
import numpy as np
import numpy.typing as npt

from service.buckets import DimSizes
from service.cards import Interpolation, PreprocessCard, Resize
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.decode import RgbImage
from service.pipeline.needs import IMAGE_DTYPES, dtypes_text, tensors_text
from service.tensors import DType, HostArray

if TYPE_CHECKING:
    from cv2.typing import MatLike

ValueTable = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.float32]

_INTERPOLATION = {
    Interpolation.NEAREST: cv2.INTER_NEAREST,
    Interpolation.LINEAR: cv2.INTER_LINEAR,
    Interpolation.CUBIC: cv2.INTER_CUBIC,
    Interpolation.AREA: cv2.INTER_AREA,
    Interpolation.LANCZOS: cv2.INTER_LANCZOS4,
}

_MAX_ASPECT = 8
"""Longer side over shorter beyond which the ends, far outside the crop, are cut before the resize: a strip of
1 x 1,000,000 pixels would otherwise grow to 256 x 256,000,000."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """The image tensor of a model.

    Attributes:
        dtype: FP32, FP16 or UINT8.
        height: pixels.
        width: pixels.
        is_channels_last: whether a row is [height, width, 3] rather than [3, height, width].
    """

    dtype: DType
    height: int
    width: int
    is_channels_last: bool

    def allocate(self, rows: int) -> HostArray:
        """Uninitialised memory for `rows` images, C-contiguous."""
        row = (self.height, self.width, 3) if self.is_channels_last else (3, self.height, self.width)
        return np.empty((rows, *row), self.dtype.numpy)


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """How one image becomes the model's size: cut `source`, scale it to `scaled`, place it.

    `scaled` is a rectangle in the coordinates of the model's canvas: where it reaches beyond the canvas it is cropped,
    where it falls short the canvas shows the pad value.

    Attributes:
        source: the part of the image that is scaled; all of it, but for extreme strips.
        scaled: size and place of the scaled part.
    """

    source: Region
    scaled: Region


def plan_resize(height: int, width: int, target: ImageInput, card: PreprocessCard) -> ResizePlan:
    """Decides the geometry for an image of `height` x `width` pixels, both at least 1."""
    whole = Region(0, 0, height, width)
    match card.resize:
        case Resize.STRETCH:
            return ResizePlan(whole, Region(0, 0, target.height, target.width))
        case Resize.LETTERBOX:
            return ResizePlan(whole, _letterbox(height, width, target))
        case Resize.SHORTEST_SIDE_CROP:
            shortest = card.shortest_side or max(target.height, target.width)
            source = _without_far_ends(height, width)
            return ResizePlan(source, _centre_crop(source, shortest, target))


def _letterbox(height: int, width: int, target: ImageInput) -> Region:
    """The largest size of the image's aspect ratio within the target, centred; odd borders are wider at the end."""
    if target.height * width <= target.width * height:
        scaled_height, scaled_width = target.height, max(1, (2 * width * target.height + height) // (2 * height))
    else:
        scaled_height, scaled_width = max(1, (2 * height * target.width + width) // (2 * width)), target.width
    top, left = (target.height - scaled_height) // 2, (target.width - scaled_width) // 2
    return Region(top, left, scaled_height, scaled_width)


def _without_far_ends(height: int, width: int) -> Region:
    """The image, its longer side cut around the middle to a bounded aspect ratio."""
    shorter = min(height, width)
    kept_height, kept_width = (_kept(side, shorter) for side in (height, width))
    return Region((height - kept_height) // 2, (width - kept_width) // 2, kept_height, kept_width)


def _kept(side: int, shorter: int) -> int:
    limit = _MAX_ASPECT * shorter
    if side <= limit:
        return side
    return limit + (side - limit) % 2  # an even cut leaves the middle where it was


def _centre_crop(source: Region, shortest: int, target: ImageInput) -> Region:
    """The shorter side scaled to `shortest`, the longer in proportion (rounded down), the middle shown.

    Rounding is torchvision's: sizes downwards, offsets to the nearest, halves to even.
    """
    shorter = min(source.height, source.width)
    height, width = shortest * source.height // shorter, shortest * source.width // shorter
    return Region(-round((height - target.height) / 2), -round((width - target.width) / 2), height, width)


@dataclass(frozen=True, slots=True, eq=False)
class Preprocessor:
    """A card's preprocessing for one model input. Immutable, so all threads share it.

    Attributes:
        target: the model's image tensor.
        card: the parameters.
        table: [3, 256]: what each 8-bit value becomes, per channel in the model's order; FP16 as its bits in uint16,
            because the look-up moves bits and OpenCV knows that type in every version.
    """

    target: ImageInput
    card: PreprocessCard
    table: ValueTable

    def write(self, image: RgbImage, host_row: HostArray) -> None:
        """Preprocesses one image into its row.

        Args:
            image: uint8[H, W, 3] RGB, any size.
            host_row: one row of what `ImageInput.allocate` gave; overwritten.
        """
        height, width, _ = image.shape
        canvas = resize(image, plan_resize(height, width, self.target, self.card), self.target, self.card)
        if self.card.color == "bgr":
            canvas = cv2.cvtColor(canvas, cv2.COLOR_RGB2BGR)
        bits: MatLike = host_row.view(self.table.dtype)
        if self.target.is_channels_last:
            cv2.LUT(canvas, np.ascontiguousarray(self.table.T)[np.newaxis], dst=bits)
            return
        for channel, plane in enumerate(cv2.split(canvas)):
            cv2.LUT(plane, self.table[channel], dst=bits[channel])


def resize(image: RgbImage, plan: ResizePlan, target: ImageInput, card: PreprocessCard) -> MatLike:
    """Carries a plan out.

    Returns:
        canvas: uint8[target.height, target.width, 3] RGB; may be a view of `image`.
    """
    source, scaled = plan.source, plan.scaled
    part: MatLike = image[source.top : source.top + source.height, source.left : source.left + source.width]
    if (source.height, source.width) != (scaled.height, scaled.width):
        part = cv2.resize(part, (scaled.width, scaled.height), interpolation=_INTERPOLATION[card.interpolation])
    shown = part[max(0, -scaled.top) :, max(0, -scaled.left) :][: target.height, : target.width]
    if shown.shape[:2] == (target.height, target.width):
        return shown
    canvas = np.full((target.height, target.width, 3), card.pad_value, np.uint8)
    top, left = max(0, scaled.top), max(0, scaled.left)
    canvas[top : top + shown.shape[0], left : left + shown.shape[1]] = shown
    return canvas


def create_preprocessor(spec: ModelSpec) -> Preprocessor:
    """Holds a model against what an image task needs.

    Raises:
        ModelLoadFailed: the model has not one image input of fixed height and width, or its card does not fit it.
    """
    target = _image_input(spec)
    card = spec.card.preprocess
    if card.resize is Resize.SHORTEST_SIDE_CROP and (card.shortest_side or 0) < max(target.height, target.width):
        raise ModelLoadFailed(
            f"model '{spec.name}': [preprocess] shortest_side is {card.shortest_side}, the model's input is "
            f"{target.height} x {target.width}; the crop needs shortest_side >= {max(target.height, target.width)}"
        )
    return Preprocessor(target, card, value_table(spec, target.dtype))


def value_table(spec: ModelSpec, dtype: DType) -> ValueTable:
    """What each 8-bit value becomes by the model's card; see `Preprocessor.table`.

    Raises:
        ModelLoadFailed: a value does not fit the type.
    """
    values = np.arange(256, dtype=np.uint8)
    if dtype is DType.UINT8:
        return np.tile(values, (3, 1))
    card = spec.card.preprocess
    mean, std = (np.array(figures, np.float32)[:, np.newaxis] for figures in (card.mean, card.std))
    with np.errstate(all="ignore"):
        table: npt.NDArray[np.float32] = (values.astype(np.float32) * np.float32(card.scale) - mean) / std
        halves = table.astype(np.float16)
    if not np.isfinite(halves if dtype is DType.FP16 else table).all():
        raise ModelLoadFailed(
            f"model '{spec.name}': [preprocess] scale = {card.scale}, mean = {list(card.mean)}, std = {list(card.std)} "
            f"give values that {dtype.value} cannot hold; std must not be 0"
        )
    return halves.view(np.uint16) if dtype is DType.FP16 else table


def _image_input(spec: ModelSpec) -> ImageInput:
    expected = (
        f"task '{spec.card.task}' needs exactly one input, of {dtypes_text(IMAGE_DTYPES)} and shape "
        "[batch, 3, height, width] or [batch, height, width, 3], height and width fixed"
    )
    found = tensors_text(spec.inputs)
    image = _as_image(spec) if len(spec.inputs) == 1 else None
    if image is None:
        raise ModelLoadFailed(
            f"model '{spec.name}': {expected}; the model has {found}. [dims] can fix a dynamic height and width, and "
            'so can one size of each in [buckets]; task = "tensor" serves any model'
        )
    return image


def image_dims(spec: ModelSpec) -> DimSizes:
    """The sizes of the dynamic dimensions of a model of images, the same for every image.

    Height and width have one size each in [buckets]; what else is dynamic can only be the leading dimension of a model
    without a batch, of which an image is one.
    """
    return tuple(1 if sizes is None else sizes[0] for sizes in spec.buckets.dim_sizes)


def _as_image(spec: ModelSpec) -> ImageInput | None:
    tensor, buckets = spec.inputs[0], spec.buckets
    if tensor.dtype not in IMAGE_DTYPES or len(tensor.dims) != 4:
        return None
    sizes = {
        name: served[0]
        for name, served in zip(buckets.dim_names, buckets.dim_sizes, strict=True)
        if served is not None and len(served) == 1
    }
    leading, *dims = (sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in tensor.dims)
    if not spec.has_batch_dim and isinstance(leading, int) and leading != 1:
        return None
    is_channels_last = dims[0] != 3
    height, width = (dims[0], dims[1]) if is_channels_last else (dims[1], dims[2])
    if not isinstance(height, int) or not isinstance(width, int) or 3 not in (dims[0], dims[2]):
        return None
    return ImageInput(tensor.dtype, height, width, is_channels_last)

"""Images as the kernel `preprocess` takes them: pixels as they are, and an entry that says what to do with them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.specs import IMAGE, MAX_CANVAS_SIDE, MAX_IMAGE_SIDE
from kernels.specs import PixelFormat as KernelFormat
from service.pipeline.frames import PixelFormat, RawImage
from service.pipeline.preprocess import ResizePlan
from service.tensors import HostArray

DESCRIPTOR_BYTES = IMAGE.itemsize

_FORMATS = {
    PixelFormat.RGB: KernelFormat.RGB,
    PixelFormat.BGR: KernelFormat.BGR,
    PixelFormat.NV12: KernelFormat.NV12,
}


def described(image: RawImage, plan: ResizePlan) -> tuple[HostArray, HostArray] | None:
    """The inputs of one image in the form of media, without a copy of its pixels.

    Args:
        image: of any size and format.
        plan: what shall become of it.

    Returns:
        pixels UINT8[bytes] and descriptor UINT8[1, 64], an entry of `kernels.specs.IMAGE` whose addresses count from
        the first pixel; None where the kernel cannot work with such a size or plan.
    """
    source, scaled = plan.source, plan.scaled
    is_whole = (source.height, source.width) == (image.height, image.width)
    if max(source.height, source.width) > MAX_IMAGE_SIDE or max(scaled.height, scaled.width) > MAX_CANVAS_SIDE:
        return None
    if image.format is PixelFormat.NV12 and not is_whole:  # a part might begin within 2 x 2 pixels of one colour
        return None
    pitch_bytes = image.width * (1 if image.format is PixelFormat.NV12 else 3)
    entry = np.zeros(1, IMAGE)
    entry["pixels"] = source.top * pitch_bytes + source.left * (pitch_bytes // image.width)
    entry["chroma"] = image.height * pitch_bytes if image.format is PixelFormat.NV12 else 0
    entry["height"], entry["width"] = source.height, source.width
    entry["pitch_bytes"] = entry["chroma_pitch_bytes"] = pitch_bytes
    entry["format"] = _FORMATS[image.format]
    entry["top"], entry["left"] = scaled.top, scaled.left
    entry["scaled_height"], entry["scaled_width"] = scaled.height, scaled.width
    return image.pixels.reshape(-1), _frozen(entry.view(np.uint8).reshape(1, DESCRIPTOR_BYTES))


def _frozen(array: npt.NDArray[np.uint8]) -> HostArray:
    array.flags.writeable = False
    return array

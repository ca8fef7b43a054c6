"""Images of any sizes as a model's input: uploaded one after another with their descriptors, scaled by a kernel.

A request is one image: `(pixels: UINT8[n], descriptor: UINT8[1, 64])`, where the descriptor is an entry of
`kernels.specs.IMAGE` whose addresses count from the first pixel. In the upload memory the descriptors of all rows come
first; a row without an image has zeros, and becomes a row of the pad value. The pixels follow, each image at a multiple
of 256: the kernel reads whole words of 4 bytes, up to 3 bytes beyond the last pixel. What is copied is what is there,
however much room the bucket has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isqrt

import numpy as np

from kernels.launch import DeviceTensor, Kernels
from kernels.preprocess import Normalisation, prepare_preprocess
from kernels.specs import IMAGE, MAX_CANVAS_SIDE, PixelFormat
from service.buckets import DimSizes
from service.cards import Interpolation
from service.errors import ExecutionFailed
from service.models import MediaForm, ModelSpec
from service.pipeline.decode import RgbImage
from service.pipeline.frames import RawImage
from service.pipeline.image_descriptors import DESCRIPTOR_BYTES, described
from service.pipeline.preprocess import Preprocessor, create_preprocessor, plan_resize
from service.requests import Batch
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.memory import PinnedBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.synthetic import SEED
from service.runtime.trt.media.form import Back, DeviceTask, MediaPlaces, NotOnDevice, aligned, sizes_that_fit
from service.runtime.trt.profiles import BucketShapes
from service.runtime.trt.routes import Block, IsPageLocked, Route, page_locked_address
from service.tensors import BATCH_DIM, DType, HostArray, TensorSpec

CHANNELS = 3

INPUTS = (
    TensorSpec("pixels", DType.UINT8, ("bytes",)),
    TensorSpec("descriptor", DType.UINT8, (BATCH_DIM, DESCRIPTOR_BYTES)),
)

_EXAMPLE_SHADES = 4


@dataclass(frozen=True, slots=True)
class ImageFront:
    """The kernel `preprocess`.

    Attributes:
        pixel_bytes: room for the pixels of one image, a multiple of 256.
        normalisation: what becomes of 8-bit values.
    """

    pixel_bytes: int
    normalisation: Normalisation

    @property
    def is_in_place(self) -> bool:
        """The kernel writes the engine's input."""
        return False

    @property
    def sources(self) -> tuple[str, ...]:
        """Of the kernel."""
        return ("preprocess",)

    def upload_bytes(self, shapes: BucketShapes) -> int:
        """Descriptors, and the largest image for each row."""
        rows = shapes.bucket.padded_size
        return aligned(rows * DESCRIPTOR_BYTES) + rows * self.pixel_bytes

    def feed(self, shapes: BucketShapes, pinned: PinnedBuffer, upload: int) -> ImageFeed:
        """See `ImageFeed`."""
        host = pinned.host(np.uint8, (self.upload_bytes(shapes),))
        return ImageFeed(host, rows=shapes.bucket.padded_size, upload=upload)

    def calls(self, kernels: Kernels, places: MediaPlaces, *, stream: Stream) -> tuple[PreparedCall, ...]:
        """One launch for the batch."""
        rows = places.inputs[0]
        images = DeviceTensor(places.upload, DType.UINT8, (rows.shape[0], DESCRIPTOR_BYTES), kernels.device)
        return (prepare_preprocess(kernels, images, rows, self.normalisation, stream=stream),)


class ImageFeed:
    """Lays the images of a batch out, and tells their descriptors where.

    Args:
        host: uint8[n] pinned: the upload memory of the bucket.
        rows: of the padded batch.
        upload: device address that `host` is copied to.
    """

    def __init__(self, host: HostArray, *, rows: int, upload: int) -> None:
        self._host = host
        self._rows = rows
        self._upload = upload

    def is_small(self, batch: Batch) -> bool:
        """Never: every batch uploads as much as its images have."""
        return False

    def gather(self, batch: Batch) -> None:
        """Is not asked for, since no batch is small."""
        raise AssertionError("images are uploaded as far as they go")

    def route(self, batch: Batch, is_page_locked: IsPageLocked) -> Route:
        """Descriptors and the images in ordinary memory through pinned memory, the others from where they lie.

        Raises:
            ExecutionFailed: the images have more pixels than the bucket has room for.
        """
        route = Route()
        end = aligned(self._rows * DESCRIPTOR_BYTES)
        pieces: list[Block] = []
        offsets = []
        for request in batch.requests:
            pixels = request.inputs[0]
            nbytes = pixels.nbytes
            offsets.append(end)
            if end + nbytes > self._host.nbytes:
                raise ExecutionFailed(
                    f"a batch of images needs more than the {self._host.nbytes} bytes that bucket {batch.bucket.label} "
                    "has for them; larger images are to be sent as tensors"
                )
            address = page_locked_address(pixels, is_page_locked)
            if address is None:
                pieces.append(Block(self._host[end : end + nbytes], pixels, end))
            else:
                route.direct.append((end, address, nbytes))
            end = aligned(end + nbytes)
        descriptors = self._descriptors(batch, offsets)
        route.work = [Block(self._host[: descriptors.nbytes], descriptors, 0), *pieces]
        return route

    def _descriptors(self, batch: Batch, offsets: list[int]) -> HostArray:
        """UINT8[rows * 64], with device addresses; zeros for the rows after the last image."""
        entries = np.zeros(self._rows, IMAGE)
        own = entries[: len(offsets)]
        own[:] = np.concatenate([request.inputs[1] for request in batch.requests]).view(IMAGE)[:, 0]
        starts = np.array(offsets, np.uint64) + np.uint64(self._upload)
        own["pixels"] += starts
        own["chroma"] += np.where(own["format"] == PixelFormat.NV12, starts, np.uint64(0))
        return entries.view(np.uint8)


def image_task(spec: ModelSpec, outputs: tuple[TensorSpec, ...], back: Back) -> DeviceTask:
    """A task that takes images, around what makes its outputs.

    Raises:
        ModelLoadFailed: the model takes no images.
        NotOnDevice: it takes them in a way that the kernel does not know.
    """
    preprocessor = create_preprocessor(spec)
    _require_kernel(preprocessor)
    pixels = spec.card.preprocess.device_image_pixels
    pixel_bytes = aligned(pixels * CHANNELS)
    form = MediaForm(
        inputs=INPUTS,
        outputs=outputs,
        batch_sizes=sizes_that_fit(spec.buckets.batch_sizes, pixel_bytes + DESCRIPTOR_BYTES),
        max_row_bytes=pixels * CHANNELS + DESCRIPTOR_BYTES,
        example=partial(_example, preprocessor=preprocessor, pixels=pixels),
    )
    return DeviceTask(form, ImageFront(pixel_bytes, Normalisation.from_card(spec.card.preprocess)), back)


def _require_kernel(preprocessor: Preprocessor) -> None:
    card, target = preprocessor.card, preprocessor.target
    if card.interpolation is not Interpolation.LINEAR:
        raise NotOnDevice(
            f"[preprocess] interpolation is '{card.interpolation.value}', the kernel knows 'linear'; write that, if "
            "the model's accuracy allows it"
        )
    if target.dtype is DType.UINT8 or target.is_channels_last:
        layout = "[batch, height, width, 3]" if target.is_channels_last else "[batch, 3, height, width]"
        raise NotOnDevice(
            f"the model's input is {target.dtype.value} {layout}, the kernel writes FP32 or FP16 "
            "[batch, 3, height, width]; export the model with such an input"
        )
    side = max(target.height, target.width, 2 * (card.shortest_side or 0))  # twice, for what the crop leaves out
    if side > MAX_CANVAS_SIDE:
        raise NotOnDevice(
            f"the model's input is of {target.height} x {target.width} pixels and shortest_side in [preprocess] is "
            f"{card.shortest_side}; the kernel scales to at most {MAX_CANVAS_SIDE} a side, the shortest to half of it"
        )


def _example(
    rows: int, dims: DimSizes, *, preprocessor: Preprocessor, pixels: int
) -> tuple[tuple[HostArray, ...], ...]:
    """Noise in several shades, of nearly half the pixels that an image may have and each a row lower than the last."""
    width = max(1, isqrt(pixels * 4 // 5))
    height = max(1, width * 9 // 16)
    noise = np.random.default_rng(SEED).integers(0, 256, (height, width, CHANNELS), np.uint8)
    shades = [(noise >> shade).astype(np.uint8) for shade in range(_EXAMPLE_SHADES)]
    images = (shades[row % len(shades)][: height - row % height] for row in range(rows))
    return tuple(_described(image, preprocessor) for image in images)


def _described(pixels: RgbImage, preprocessor: Preprocessor) -> tuple[HostArray, ...]:
    height, width, _ = pixels.shape
    plan = plan_resize(height, width, preprocessor.target, preprocessor.card)
    inputs = described(RawImage.from_rgb(pixels), plan)
    assert inputs is not None, "what the kernel cannot do was refused with the card"
    return inputs

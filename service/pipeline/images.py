"""Image files to what a model's lanes take: what every image task does before the model runs.

Where the task has kernels on the model's device an image goes there as it is, to be scaled and normalised by them; what
they cannot do, or have no room for, becomes a row of the model's input here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from service.buckets import DimSizes, Form
from service.errors import ServiceError
from service.models import MediaForm, ModelSpec
from service.pipeline.decode import RgbImage, decode_image
from service.pipeline.frames import RawImage
from service.pipeline.image_descriptors import described
from service.pipeline.media import MediaFile, split_media
from service.pipeline.preprocess import Preprocessor, create_preprocessor, image_dims, plan_resize
from service.pipeline.steps import Call
from service.tensors import HostArray

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Height and width of an image in pixels, upright."""

    height: int
    width: int


@dataclass(frozen=True, slots=True)
class LoadedImages:
    """The images of a request on their way to the model.

    Attributes:
        calls: of one form each: an image as media has a call of its own, those as tensors share one, the last.
        sizes: of the images as they came.
        indices: per call, which images its rows are.
    """

    calls: tuple[Call, ...]
    sizes: tuple[ImageSize, ...]
    indices: tuple[tuple[int, ...], ...]

    def in_order(self, by_call: Iterable[Sequence[T]]) -> list[T]:
        """What each call has for each of its rows, in the order of the images."""
        found: dict[int, T] = {}
        for indices, rows in zip(self.indices, by_call, strict=True):
            found.update(zip(indices, rows, strict=True))
        return [found[index] for index in range(len(self.sizes))]


@dataclass(frozen=True, slots=True, eq=False)
class ImageLoader:
    """Makes calls of the images in a request's body, which it decodes, or of a frame. Immutable, so threads share it.

    Attributes:
        preprocessor: of the model.
        max_images: most images of one request: the rows of the model's largest batch.
        max_pixels: most pixels of one image.
        dims: sizes of the model's dynamic dimensions, of every image.
        media: how images are taken as they are; None where they are not.
    """

    preprocessor: Preprocessor
    max_images: int
    max_pixels: int
    dims: DimSizes = ()
    media: MediaForm | None = None

    def load(self, body: bytes, content_type: str, *, as_media: bool = True) -> LoadedImages:
        """The images of a body, one row each. Takes milliseconds per image: runs on a pool thread.

        Of the images that become tensors only one is in memory decoded at a time. Of the others, no more than the
        largest batch of media has room for: a small file can hold many pixels, and a request many files.

        Args:
            body: the whole, already bounded, body.
            content_type: value of the header.
            as_media: whether images may go as they are; what the model answers to those is not what it answers to rows.

        Raises:
            InvalidInput: the form or an image in it is malformed, or there are too many.
            PayloadTooLarge: an image has too many pixels.
            UnsupportedMediaType: the content type, or the format of an image, is not one that is read.
        """
        files = split_media(body, content_type, max_files=self.max_images)
        images = (RawImage.from_rgb(decode_file(file, max_pixels=self.max_pixels)) for file in files)
        return self._prepared(images, len(files), as_media=as_media)

    def load_frame(self, frame: RawImage, *, as_media: bool = True) -> LoadedImages:
        """A frame as one row; see `load`. Takes milliseconds where it becomes a tensor: runs on a pool thread."""
        return self._prepared((frame,), 1, as_media=as_media)

    def _prepared(self, images: Iterable[RawImage], count: int, *, as_media: bool) -> LoadedImages:
        """Where every way of an image to the model meets: of `count` images, one after the other, calls are made."""
        calls: list[Call] = []
        indices: list[tuple[int, ...]] = []
        sizes: list[ImageSize] = []
        tensors: list[int] = []
        host_images: HostArray | None = None
        room_bytes = self.media.max_batch_bytes if self.media is not None and as_media else 0
        for index, image in enumerate(images):
            sizes.append(ImageSize(image.height, image.width))
            inputs = self._as_media(image, room_bytes)
            if inputs is not None:
                calls.append(Call(inputs, 1, self.dims, form=Form.MEDIA))
                room_bytes -= calls[-1].nbytes
                indices.append((index,))
                continue
            if host_images is None:
                host_images = self.preprocessor.target.allocate(count - index)
            self.preprocessor.write(image.to_rgb(), host_images[len(tensors)])
            tensors.append(index)
        if host_images is not None:
            rows = host_images[: len(tensors)]
            rows.flags.writeable = False
            calls.append(Call((rows,), len(tensors), self.dims))
            indices.append(tuple(tensors))
        return LoadedImages(tuple(calls), tuple(sizes), tuple(indices))

    def _as_media(self, image: RawImage, room_bytes: int) -> tuple[HostArray, HostArray] | None:
        """The inputs of an image as it is, in `room_bytes` at most, or None where it must become a tensor."""
        if self.media is None or not room_bytes:
            return None
        plan = plan_resize(image.height, image.width, self.preprocessor.target, self.preprocessor.card)
        inputs = described(image, plan)
        most_bytes = min(room_bytes, self.media.max_row_bytes)
        if inputs is None or sum(host.nbytes for host in inputs) > most_bytes:
            return None
        return inputs


def decode_file(file: MediaFile, *, max_pixels: int) -> RgbImage:
    """The pixels of one file of a request; an error says which file it is about.

    Raises:
        InvalidInput, PayloadTooLarge, UnsupportedMediaType: as `decode_image`.
    """
    try:
        return decode_image(file.data, max_pixels=max_pixels)
    except ServiceError as error:
        if not file.name:
            raise
        raise type(error)(f"{file.name}: {error.message}") from None


def create_image_loader(spec: ModelSpec, *, max_pixels: int) -> ImageLoader:
    """The loader of a model that takes images.

    Raises:
        ModelLoadFailed: the model does not take images, or its card does not fit it.
    """
    return ImageLoader(
        create_preprocessor(spec),
        max_images=max(1, spec.max_batch_size),
        max_pixels=max_pixels,
        dims=image_dims(spec),
        media=spec.media,
    )

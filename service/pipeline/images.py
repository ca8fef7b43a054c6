"""Image files to the rows of a model's input: what every image task does before the model runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from service.errors import ServiceError
from service.models import ModelSpec
from service.pipeline.decode import RgbImage, decode_image
from service.pipeline.frames import RawImage
from service.pipeline.media import MediaFile, split_media
from service.pipeline.preprocess import Preprocessor, create_preprocessor
from service.tensors import HostArray


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Height and width of an image in pixels, upright."""

    height: int
    width: int


@dataclass(frozen=True, slots=True)
class LoadedImages:
    """The images of a request as the model takes them.

    Attributes:
        inputs: the one host_ array, one row per image in the order of the request, C-contiguous, read-only.
        sizes: of the images as they came.
    """

    inputs: tuple[HostArray, ...]
    sizes: tuple[ImageSize, ...]

    @property
    def rows(self) -> int:
        """Images."""
        return len(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class ImageLoader:
    """Makes rows of the images in a request's body, which it decodes, or of a frame. Immutable, so threads share it.

    Attributes:
        preprocessor: of the model.
        max_images: most images of one request: the rows of the model's largest batch.
        max_pixels: most pixels of one image.
    """

    preprocessor: Preprocessor
    max_images: int
    max_pixels: int

    def load(self, body: bytes, content_type: str) -> LoadedImages:
        """The images of a body, one row each. Takes milliseconds per image: runs on a pool thread.

        Only one decoded image is in memory at a time.

        Raises:
            InvalidInput: the form or an image in it is malformed, or there are too many.
            PayloadTooLarge: an image has too many pixels.
            UnsupportedMediaType: the content type, or the format of an image, is not one that is read.
        """
        files = split_media(body, content_type, max_files=self.max_images)
        images = (RawImage.from_rgb(decode_file(file, max_pixels=self.max_pixels)) for file in files)
        return self._prepared(images, len(files))

    def load_frame(self, frame: RawImage) -> LoadedImages:
        """A frame as one row. Takes milliseconds: runs on a pool thread."""
        return self._prepared((frame,), 1)

    def _prepared(self, images: Iterable[RawImage], count: int) -> LoadedImages:
        """Where every way of an image to the model meets: `count` images become that many rows, one after the other."""
        host_images = self.preprocessor.target.allocate(count)
        sizes = []
        for row, image in enumerate(images):
            self.preprocessor.write(image.to_rgb(), host_images[row])
            sizes.append(ImageSize(image.height, image.width))
        host_images.flags.writeable = False
        return LoadedImages((host_images,), tuple(sizes))


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
    return ImageLoader(create_preprocessor(spec), max_images=max(1, spec.max_batch_size), max_pixels=max_pixels)

"""`preprocess` against its reference, emulated and on a GPU: pixels bit for bit, the rest within a rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kernels.launch import DeviceTensor
from kernels.preprocess import Normalisation, Placement, SourceImage, describe_images, image_entry, prepare_preprocess
from kernels.reference import normalise, place, resize_linear, rgb_from_nv12
from kernels.session import DeviceSession
from kernels.specs import IMAGE, PixelFormat
from service.cards import PreprocessCard, Resize
from service.pipeline.preprocess import ImageInput, plan_resize
from service.tensors import DType
from tests.gpu.kernel_cases import device_session  # noqa: F401 - a fixture

AS_IT_IS = Normalisation((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), is_bgr=False, pad_value=114)
IMAGENET = Normalisation.from_card(PreprocessCard(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), color="bgr"))

SIZES = [
    (1, 1),
    (1, 2),
    (2, 1),
    (3, 5),
    (1, 300),
    (300, 1),
    (37, 53),
    (224, 224),
    (448, 448),
    (720, 1281),
    (1080, 1920),
]


@dataclass(frozen=True)
class Placed:
    """An image on the device, and what the reference makes of it."""

    entry: np.ndarray
    canvas: np.ndarray


def random_pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def placed(
    session: DeviceSession, rgb: np.ndarray, target: ImageInput, card: PreprocessCard, pixel_format: PixelFormat
) -> Placed:
    """Uploads an image with its rows 5 bytes apart, so that they begin at odd addresses."""
    height, width = rgb.shape[:2]
    plan = plan_resize(height, width, target, card)
    source, scaled = plan.source, plan.scaled
    pitch = width * 3 + 5
    padded = np.zeros((height, pitch), np.uint8)
    stored = rgb[..., ::-1] if pixel_format is PixelFormat.BGR else rgb
    padded[:, : width * 3] = stored.reshape(height, width * 3)
    memory = session.upload(padded.ravel()[: (height - 1) * pitch + width * 3])
    address = memory.address + source.top * pitch + source.left * 3
    image = SourceImage(address, source.height, source.width, pitch, pixel_format)
    part = rgb[source.top : source.top + source.height, source.left : source.left + source.width]
    return Placed(
        image_entry(image, Placement(scaled.top, scaled.left, scaled.height, scaled.width)),
        on_canvas(part, target, scaled, card.pad_value),
    )


def on_canvas(part: np.ndarray, target: ImageInput, scaled, pad_value: int) -> np.ndarray:
    canvas = np.full((target.height, target.width, 3), pad_value, np.uint8)
    place(resize_linear(part, scaled.height, scaled.width), scaled.top, scaled.left, canvas)
    return canvas


def placed_nv12(session: DeviceSession, height: int, width: int, target: ImageInput, card: PreprocessCard) -> Placed:
    planes = random_pixels(height, 3 * height // 2, width)
    memory = session.upload(planes)
    scaled = plan_resize(height, width, target, card).scaled
    chroma = memory.address + height * width
    image = SourceImage(memory.address, height, width, width, PixelFormat.NV12, chroma)
    rgb = rgb_from_nv12(planes[:height], planes[height:].reshape(height // 2, width // 2, 2))
    return Placed(
        image_entry(image, Placement(scaled.top, scaled.left, scaled.height, scaled.width)),
        on_canvas(rgb, target, scaled, card.pad_value),
    )


def described(session: DeviceSession, images: list[Placed]) -> DeviceTensor:
    return session.upload(entries(images))


def entries(images: list[Placed]) -> np.ndarray:
    return describe_images([image.entry for image in images])


def expected(images: list[Placed], how: Normalisation, dtype: DType) -> np.ndarray:
    rows = [
        normalise(image.canvas[..., ::-1] if how.is_bgr else image.canvas, how.factor, how.offset) for image in images
    ]
    return np.stack(rows).astype(dtype.numpy)


def preprocessed(session: DeviceSession, images: list[Placed], target: ImageInput, how: Normalisation) -> np.ndarray:
    rows = session.empty(target.dtype, len(images), 3, target.height, target.width)
    session.run(prepare_preprocess(session.kernels, described(session, images), rows, how, stream=session.stream))
    return session.download(rows)


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
@pytest.mark.parametrize("pixel_format", [PixelFormat.RGB, PixelFormat.BGR])
@pytest.mark.parametrize("resize", list(Resize))
@pytest.mark.parametrize("canvas", [(224, 224), (65, 131), (1, 1)])
def test_pixels_are_the_reference_bit_for_bit(session, dtype, pixel_format, resize, canvas) -> None:
    target = ImageInput(dtype, *canvas, is_channels_last=False)
    card = PreprocessCard(resize=resize, shortest_side=max(256, *canvas))
    images = [
        placed(session, random_pixels(seed, *size, 3), target, card, pixel_format) for seed, size in enumerate(SIZES)
    ]
    np.testing.assert_array_equal(preprocessed(session, images, target, AS_IT_IS), expected(images, AS_IT_IS, dtype))


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_normalised_values(session, dtype) -> None:
    target = ImageInput(dtype, 64, 96, is_channels_last=False)
    card = PreprocessCard(resize=Resize.LETTERBOX)
    images = [placed(session, random_pixels(1, 90, 70, 3), target, card, PixelFormat.RGB)]
    got = preprocessed(session, images, target, IMAGENET)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype is DType.FP16 else {"rtol": 1e-6, "atol": 4e-7}
    np.testing.assert_allclose(got, expected(images, IMAGENET, dtype), **tolerance)


def test_8k(session) -> None:
    target = ImageInput(DType.FP16, 640, 640, is_channels_last=False)
    card = PreprocessCard(resize=Resize.LETTERBOX)
    images = [placed(session, random_pixels(2, 4320, 7680, 3), target, card, PixelFormat.RGB)]
    np.testing.assert_array_equal(
        preprocessed(session, images, target, AS_IT_IS), expected(images, AS_IT_IS, DType.FP16)
    )


@pytest.mark.parametrize("resize", [Resize.STRETCH, Resize.LETTERBOX])
def test_nv12(session, resize) -> None:
    target = ImageInput(DType.FP16, 64, 96, is_channels_last=False)
    card = PreprocessCard(resize=resize)
    images = [placed_nv12(session, *size, target, card) for size in [(2, 2), (2, 100), (38, 54), (720, 1280)]]
    np.testing.assert_array_equal(
        preprocessed(session, images, target, AS_IT_IS), expected(images, AS_IT_IS, DType.FP16)
    )


def test_an_empty_entry_is_all_padding(session) -> None:
    target = ImageInput(DType.FP32, 33, 17, is_channels_last=False)
    empty = Placed(np.zeros((), IMAGE), np.full((33, 17, 3), 114, np.uint8))
    card = PreprocessCard(resize=Resize.STRETCH)
    images = [empty, placed(session, random_pixels(3, 20, 20, 3), target, card, PixelFormat.RGB), empty]
    np.testing.assert_array_equal(
        preprocessed(session, images, target, AS_IT_IS), expected(images, AS_IT_IS, DType.FP32)
    )


def test_one_graph_serves_any_sizes(session) -> None:
    target = ImageInput(DType.FP16, 224, 224, is_channels_last=False)
    card = PreprocessCard(resize=Resize.LETTERBOX)
    rows = session.empty(DType.FP16, 2, 3, 224, 224)
    descriptors = session.upload(np.zeros((2, IMAGE.itemsize), np.uint8))
    launch = prepare_preprocess(session.kernels, descriptors, rows, AS_IT_IS, stream=session.stream)
    with session.capture(launch) as graph:
        for seed, sizes in enumerate([[(10, 20), (300, 200)], [(1, 1), (2160, 3840)], [(77, 5), (64, 64)]]):
            images = [placed(session, random_pixels(seed, *size, 3), target, card, PixelFormat.RGB) for size in sizes]
            session.rewrite(descriptors, entries(images))
            graph.launch(stream=session.stream)
            np.testing.assert_array_equal(session.download(rows), expected(images, AS_IT_IS, DType.FP16))

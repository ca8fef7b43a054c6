"""The arithmetic of `preprocess`: device functions against the references, those against OpenCV and the CPU path."""

from __future__ import annotations

import ctypes

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.preprocess import Normalisation
from kernels.reference import normalise, place, resize_linear, rgb_from_nv12, taps
from kernels.specs import IMAGE
from service.cards import ModelCard, PreprocessCard, Resize
from service.models import build_spec
from service.pipeline.preprocess import ImageInput, Preprocessor, create_preprocessor, plan_resize
from service.tensors import DType, TensorSpec

SIZES = st.integers(1, 90)
WEIGHT_ONE = 2048
WEIGHTS = st.integers(0, WEIGHT_ONE)
SUMS = st.integers(0, 255 * WEIGHT_ONE)
BYTES = st.integers(0, 255)


def pixels(seed: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@given(st.integers(1, 700), st.integers(1, 9000), st.booleans())
def test_taps(host: ctypes.CDLL, scaled: int, extent: int, is_column: bool) -> None:
    got = np.zeros((scaled, 3), np.int32)
    host.host_taps(scaled, extent, int(is_column), got.ctypes.data_as(ctypes.c_void_p))
    first, weight = taps(scaled, extent)
    if is_column:
        weight = np.where((first < 0) | (first >= extent - 1), 0, weight)
        first = np.clip(first, 0, extent - 1)
    np.testing.assert_array_equal(got[:, 0], first)
    np.testing.assert_array_equal(got[:, 2], weight)
    assert (got[:, 1] + got[:, 2] == WEIGHT_ONE).all()


def test_taps_stay_inside_at_the_largest_sizes(host: ctypes.CDLL) -> None:
    got = np.zeros((16384, 3), np.int32)
    host.host_taps(16384, 65535, 1, got.ctypes.data_as(ctypes.c_void_p))
    assert got[:, 0].min() == 1
    assert got[:, 0].max() <= 65534
    assert (np.diff(got[:, 0]) >= 0).all()


def blended(upper: int, lower: int, weight: int) -> int:
    """As OpenCV does it, in whole numbers."""
    return (((upper >> 4) * (WEIGHT_ONE - weight) >> 16) + ((lower >> 4) * weight >> 16) + 2) >> 2


@given(SUMS, SUMS, WEIGHTS)
@example(255 * WEIGHT_ONE, 255 * WEIGHT_ONE, 0)
@example(255 * WEIGHT_ONE, 255 * WEIGHT_ONE, 1)
@example(255 * WEIGHT_ONE, 255 * WEIGHT_ONE, WEIGHT_ONE)
@example(0, 0, 1024)
def test_blend_is_opencv_bit_for_bit(host: ctypes.CDLL, upper: int, lower: int, weight: int) -> None:
    assert host.host_blend(upper, lower, WEIGHT_ONE - weight, weight) == blended(upper, lower, weight)


@given(SUMS)
def test_a_row_of_all_the_weight(host: ctypes.CDLL, total: int) -> None:
    assert host.host_upper_row(total) == blended(total, 0, 0)


@given(SUMS, SUMS, BYTES)
def test_a_row_of_no_weight_is_constant(host: ctypes.CDLL, upper: int, lower: int, value: int) -> None:
    assert host.host_constant_row(upper, lower, value) == value


@given(BYTES, WEIGHTS)
def test_a_column_of_no_weight_starts_at_what_blends_to_its_value(host: ctypes.CDLL, value: int, weight: int) -> None:
    start = value * WEIGHT_ONE
    assert host.host_upper_row(start) == value
    assert host.host_blend(start, start, WEIGHT_ONE - weight, weight) == value


@given(st.binary(min_size=8, max_size=8), WEIGHTS)
def test_sums_of_neighbours(host: ctypes.CDLL, memory: bytes, weight: int) -> None:
    low, high = (int.from_bytes(memory[start : start + 4], "little") for start in (0, 4))
    sums = (ctypes.c_float * 4)()
    weights = WEIGHT_ONE - weight | weight << 16
    host.host_sums(*map(ctypes.c_uint32, (low, high, weights)), sums)
    pairs = [(memory[0], memory[3]), (memory[1], memory[4]), (memory[2], memory[5]), (memory[0], memory[1])]
    assert [*sums] == [first * (WEIGHT_ONE - weight) + second * weight for first, second in pairs]
    found = (ctypes.c_float * 3)()
    host.host_bytes(ctypes.c_uint32(low), found)
    assert bytes(map(int, found)) == memory[:3]


@given(st.integers(-(1 << 20), 1 << 20), st.integers(-(1 << 20), 1 << 20))
def test_saturated_bytes(host: ctypes.CDLL, first: int, second: int) -> None:
    assert host.host_saturated_pair(first, second) == min(max(first, 0), 255) | min(max(second, 0), 255) << 8


@given(BYTES, BYTES, BYTES)
def test_yuv(host: ctypes.CDLL, y: int, u: int, v: int) -> None:
    got = np.zeros(3, np.int32)
    host.host_rgb_of_yuv(y, u, v, got.ctypes.data_as(ctypes.c_void_p))
    expected = rgb_from_nv12(np.full((2, 2), y, np.uint8), np.array([[[u, v]]], np.uint8))
    assert np.clip(got, 0, 255).tolist() == expected[0, 0].tolist()


def test_descriptors_have_one_size(host: ctypes.CDLL) -> None:
    assert host.host_size_of_image() == IMAGE.itemsize


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 2**32 - 1))
def test_reference_is_opencv_bit_for_bit(height: int, width: int, to_height: int, to_width: int, seed: int) -> None:
    image = pixels(seed, height, width)
    expected = cv2.resize(image, (to_width, to_height), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(resize_linear(image, to_height, to_width), expected)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_nv12_reference_is_opencv_bit_for_bit(height: int, width: int, seed: int) -> None:
    planes = np.random.default_rng(seed).integers(0, 256, (3 * height, 2 * width), dtype=np.uint8)
    expected = cv2.cvtColor(planes, cv2.COLOR_YUV2RGB_NV12)
    got = rgb_from_nv12(planes[: 2 * height], planes[2 * height :].reshape(height, width, 2))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("resize", list(Resize))
@given(SIZES, SIZES, st.integers(0, 2**32 - 1))
def test_reference_is_the_cpu_path(
    dtype: DType, color: str, resize: Resize, height: int, width: int, seed: int
) -> None:
    """Pixels are equal; normalised values differ by the rounding of one division: an ulp of FP16, 4e-7 in FP32."""
    card = PreprocessCard(
        resize=resize, shortest_side=40, color=color, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    )
    target = ImageInput(dtype, 33, 29, is_channels_last=False)
    image = pixels(seed, height, width)
    row = target.allocate(1)[0]
    preprocessor(target, card).write(image, row)

    got = reference_row(image, target, card).astype(dtype.numpy)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype is DType.FP16 else {"rtol": 1e-6, "atol": 4e-7}
    np.testing.assert_allclose(got, row, **tolerance)


def reference_row(image: np.ndarray, target: ImageInput, card: PreprocessCard) -> np.ndarray:
    plan = plan_resize(*image.shape[:2], target, card)
    source, scaled = plan.source, plan.scaled
    part = image[source.top : source.top + source.height, source.left : source.left + source.width]
    canvas = np.full((target.height, target.width, 3), card.pad_value, np.uint8)
    place(resize_linear(part, scaled.height, scaled.width), scaled.top, scaled.left, canvas)
    how = Normalisation.from_card(card)
    return normalise(canvas[..., ::-1] if how.is_bgr else canvas, how.factor, how.offset)


def preprocessor(target: ImageInput, card: PreprocessCard) -> Preprocessor:
    images = TensorSpec("images", target.dtype, ("batch", 3, target.height, target.width))
    scores = TensorSpec("scores", DType.FP32, ("batch", 10))
    model = ModelCard(name="m", preprocess=card)
    return create_preprocessor(
        build_spec(model, version="1", platform="onnxruntime_onnx", inputs=(images,), outputs=(scores,))
    )

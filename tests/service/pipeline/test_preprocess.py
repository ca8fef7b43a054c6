from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.cards import Interpolation, PreprocessCard, Resize
from service.errors import ModelLoadFailed
from service.pipeline.preprocess import (
    ImageInput,
    Region,
    ResizePlan,
    create_preprocessor,
    plan_resize,
    resize,
)
from service.tensors import Dim, DType, TensorSpec
from tests.service.pipeline.classifiers import image_tensor, make_spec
from tests.service.pipeline.image_files import Pixels, noise, smooth

TARGET = ImageInput(DType.FP32, 24, 32, is_channels_last=False)
LETTERBOX = PreprocessCard(resize=Resize.LETTERBOX)
CROP = PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=40)
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

SIDE = st.integers(1, 3000)


def square(side: int) -> ImageInput:
    return ImageInput(DType.FP32, side, side, is_channels_last=False)


@pytest.mark.parametrize(
    ("height", "width", "card", "target", "expected"),
    [
        pytest.param(50, 60, PreprocessCard(), TARGET, Region(0, 0, 24, 32), id="stretch"),
        pytest.param(48, 64, LETTERBOX, TARGET, Region(0, 0, 24, 32), id="letterbox of the same ratio"),
        pytest.param(48, 48, LETTERBOX, TARGET, Region(0, 4, 24, 24), id="letterbox with side borders"),
        pytest.param(10, 40, LETTERBOX, TARGET, Region(8, 0, 8, 32), id="letterbox with borders above and below"),
        pytest.param(10, 37, LETTERBOX, TARGET, Region(7, 0, 9, 32), id="letterbox rounds to the nearest, wider below"),
        pytest.param(1, 3000, LETTERBOX, TARGET, Region(11, 0, 1, 32), id="letterbox keeps one row"),
        pytest.param(3000, 1, LETTERBOX, TARGET, Region(0, 15, 24, 1), id="letterbox keeps one column"),
        pytest.param(80, 80, CROP, TARGET, Region(-8, -4, 40, 40), id="crop"),
        pytest.param(80, 121, CROP, TARGET, Region(-8, -14, 40, 60), id="crop rounds the longer side down"),
        # torchvision: Resize(256) of 480 x 640 is 256 x 341, CenterCrop(224) starts at round(16.0), round(58.5) = 58
        pytest.param(
            480,
            640,
            PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=256),
            square(224),
            Region(-16, -58, 256, 341),
            id="crop offset of .5 to even, downwards",
        ),
        # 343 - 224 = 119, half of it 59.5, to even: 60
        pytest.param(
            256,
            343,
            PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=256),
            square(224),
            Region(-16, -60, 256, 343),
            id="crop offset of .5 to even, upwards",
        ),
    ],
)
def test_geometry(height: int, width: int, card: PreprocessCard, target: ImageInput, expected: Region) -> None:
    assert plan_resize(height, width, target, card) == ResizePlan(Region(0, 0, height, width), expected)


@given(SIDE, SIDE, st.integers(1, 700), st.integers(1, 700))
def test_letterbox_fits_touches_and_is_centred(height: int, width: int, target_height: int, target_width: int) -> None:
    target = ImageInput(DType.FP32, target_height, target_width, is_channels_last=False)
    scaled = plan_resize(height, width, target, LETTERBOX).scaled
    below, right = target_height - scaled.top - scaled.height, target_width - scaled.left - scaled.width
    assert scaled.height == target_height or scaled.width == target_width
    assert 0 <= below - scaled.top <= 1
    assert 0 <= right - scaled.left <= 1
    scale = min(target_height / height, target_width / width)
    assert abs(scaled.height - height * scale) <= 0.5 + 1e-6 or scaled.height == 1
    assert abs(scaled.width - width * scale) <= 0.5 + 1e-6 or scaled.width == 1


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20), st.integers(32, 300))
def test_crop_covers_the_canvas_around_the_middle_and_stays_small(height: int, width: int, shortest: int) -> None:
    card = PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=shortest)
    plan = plan_resize(height, width, TARGET, card)
    source, scaled = plan.source, plan.scaled
    assert scaled.top <= 0
    assert scaled.left <= 0
    assert scaled.top + scaled.height >= TARGET.height
    assert scaled.left + scaled.width >= TARGET.width
    assert min(scaled.height, scaled.width) == shortest
    assert max(scaled.height, scaled.width) <= 9 * shortest
    assert (2 * source.top + source.height, 2 * source.left + source.width) == (height, width)
    assert abs(2 * scaled.top + scaled.height - TARGET.height) <= 1
    assert abs(2 * scaled.left + scaled.width - TARGET.width) <= 1


@given(
    height=st.integers(1, 60), width=st.integers(1, 60), how=st.sampled_from(Resize), by=st.sampled_from(Interpolation)
)
def test_any_size_fills_the_canvas(height: int, width: int, how: Resize, by: Interpolation) -> None:
    card = PreprocessCard(resize=how, interpolation=by, shortest_side=40)
    image = np.full((height, width, 3), 200, np.uint8)
    canvas = resize(image, plan_resize(height, width, TARGET, card), TARGET, card)
    assert canvas.shape == (24, 32, 3)
    values = set(np.unique(canvas))
    assert values <= ({200, 114} if how is Resize.LETTERBOX else {200})


@pytest.mark.parametrize(("height", "width"), [(1, 1_000_000), (1_000_000, 1), (3, 100_001)])
@pytest.mark.parametrize("how", Resize)
def test_extreme_strips_take_little(height: int, width: int, how: Resize) -> None:
    card = PreprocessCard(resize=how, shortest_side=256, interpolation=Interpolation.LANCZOS)
    image = np.zeros((height, width, 3), np.uint8)
    target = square(224)
    assert resize(image, plan_resize(height, width, target, card), target, card).shape == (224, 224, 3)


def test_cutting_the_far_ends_does_not_change_the_crop() -> None:
    image = smooth(8, 201)
    target = square(16)
    card = PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=16)
    whole = cv2.resize(image, (402, 16), interpolation=cv2.INTER_LINEAR)[:, 193:209]
    canvas = resize(image, plan_resize(8, 201, target, card), target, card)
    assert np.abs(canvas.astype(int) - whole).max() <= 1


def test_letterbox_borders_hold_the_pad_value_and_the_rest_the_image() -> None:
    image = noise(24, 16)
    card = PreprocessCard(resize=Resize.LETTERBOX, pad_value=9)
    canvas = resize(image, plan_resize(24, 16, TARGET, card), TARGET, card)
    np.testing.assert_array_equal(canvas[:, 8:24], image)
    assert (canvas[:, :8] == 9).all()
    assert (canvas[:, 24:] == 9).all()


@pytest.mark.parametrize("interpolation", Interpolation)
def test_interpolation_is_the_cards(interpolation: Interpolation) -> None:
    image = noise(60, 70)
    card = PreprocessCard(interpolation=interpolation)
    flags = {"nearest": 0, "linear": 1, "cubic": 2, "area": 3, "lanczos": 4}
    expected = cv2.resize(image, (32, 24), interpolation=flags[interpolation.value])
    np.testing.assert_array_equal(resize(image, plan_resize(60, 70, TARGET, card), TARGET, card), expected)


def reference(image: Pixels, card: PreprocessCard) -> np.ndarray:
    """The formula, straightforwardly: [3, H, W] FP32."""
    pixels = image[..., ::-1] if card.color == "bgr" else image
    scaled = pixels.astype(np.float32) * np.float32(card.scale)
    return ((scaled - np.float32(card.mean)) / np.float32(card.std)).transpose(2, 0, 1)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("is_channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16, DType.UINT8])
def test_rows_hold_the_formula_exactly(dtype: DType, is_channels_last: bool, color: str) -> None:
    card = PreprocessCard(color=color, **IMAGENET)
    dims: tuple[Dim, ...] = ("n", 24, 32, 3) if is_channels_last else ("n", 3, 24, 32)
    preprocessor = create_preprocessor(make_spec(inputs=(image_tensor(dims, dtype),), preprocess=card))
    images = [noise(24, 32, seed=seed) for seed in range(2)]
    host_rows = preprocessor.target.allocate(2)
    for row, image in zip(host_rows, images, strict=True):
        preprocessor.write(image, row)
    assert host_rows.dtype == dtype.numpy
    assert host_rows.shape == (2, *dims[1:])
    for row, image in zip(host_rows, images, strict=True):
        expected = (
            reference(image, card)
            if dtype is not DType.UINT8
            else reference(image, PreprocessCard(color=color, scale=1))
        )
        planes = row.transpose(2, 0, 1) if is_channels_last else row
        np.testing.assert_array_equal(planes, expected.astype(dtype.numpy))


@given(height=st.integers(1, 9), width=st.integers(1, 9), is_channels_last=st.booleans())
def test_rows_of_any_model_size(height: int, width: int, is_channels_last: bool) -> None:
    assume(not (is_channels_last and height == 3))  # reads as channels first
    dims: tuple[Dim, ...] = ("n", height, width, 3) if is_channels_last else ("n", 3, height, width)
    preprocessor = create_preprocessor(make_spec(inputs=(image_tensor(dims),)))
    image = noise(height, width)
    host_rows = preprocessor.target.allocate(1)
    host_rows[:] = np.float32("nan")
    preprocessor.write(image, host_rows[0])
    planes = host_rows[0].transpose(2, 0, 1) if is_channels_last else host_rows[0]
    np.testing.assert_array_equal(planes, reference(image, PreprocessCard()))


def test_the_image_itself_is_left_as_it_was() -> None:
    image = noise(24, 32)
    before = image.copy()
    preprocessor = create_preprocessor(make_spec(preprocess=PreprocessCard(color="bgr")))
    preprocessor.write(image, preprocessor.target.allocate(1)[0])
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        (("n", 3, 24, 32), (24, 32, False)),
        (("n", 24, 32, 3), (24, 32, True)),
        (("n", 3, 24, 3), (24, 3, False)),
        ((1, 3, 24, 32), (24, 32, False)),
    ],
)
def test_reads_the_layout_from_the_shape(dims: tuple[Dim, ...], expected: tuple[int, int, bool]) -> None:
    target = create_preprocessor(make_spec(inputs=(image_tensor(dims),))).target
    assert (target.height, target.width, target.is_channels_last) == expected


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param((image_tensor(), TensorSpec("more", DType.FP32, ("n", 1))), id="two inputs"),
        pytest.param((image_tensor(("n", 3, 24)),), id="rank 3"),
        pytest.param((image_tensor(("n", 3, 1, 24, 32)),), id="rank 5"),
        pytest.param((image_tensor(("n", 1, 24, 32)),), id="grey"),
        pytest.param((image_tensor(("n", 4, 24, 32)),), id="four channels"),
        pytest.param((image_tensor(("n", 3, "h", 32)),), id="dynamic height"),
        pytest.param((image_tensor(("n", 24, "w", 3)),), id="dynamic width"),
        pytest.param((image_tensor((2, 3, 24, 32)),), id="fixed batch of two"),
        pytest.param((image_tensor(dtype=DType.INT64),), id="INT64"),
        pytest.param((image_tensor(dtype=DType.BF16),), id="BF16"),
    ],
)
def test_models_without_one_image_input_are_refused(inputs: tuple[TensorSpec, ...]) -> None:
    with pytest.raises(
        ModelLoadFailed, match=r"needs exactly one input.*\[batch, 3, height, width\].*the model has 'image'"
    ):
        create_preprocessor(make_spec(inputs=inputs))


@pytest.mark.parametrize("shortest_side", [None, 31])
def test_a_crop_must_fit_into_the_scaled_image(shortest_side: int | None) -> None:
    card = PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=shortest_side)
    with pytest.raises(ModelLoadFailed, match="needs shortest_side >= 32"):
        create_preprocessor(make_spec(preprocess=card))


@pytest.mark.parametrize(
    ("card", "dtype"),
    [
        (PreprocessCard(std=(1.0, 0.0, 1.0)), DType.FP32),
        (PreprocessCard(scale=1e6), DType.FP16),
    ],
)
def test_values_that_the_type_cannot_hold_are_refused(card: PreprocessCard, dtype: DType) -> None:
    with pytest.raises(ModelLoadFailed, match=f"{dtype.value} cannot hold"):
        create_preprocessor(make_spec(inputs=(image_tensor(dtype=dtype),), preprocess=card))

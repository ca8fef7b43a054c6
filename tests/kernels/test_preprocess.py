"""What the launcher of `preprocess` checks, and what it enqueues."""

from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path

import pytest

from kernels.preprocess import (
    Normalisation,
    NormalisationArgument,
    Placement,
    SourceImage,
    image_entry,
    prepare_preprocess,
)
from kernels.specs import PixelFormat
from service.cards import PreprocessCard
from service.errors import DeviceError
from service.runtime.cuda.calls import run_calls
from service.tensors import DType
from tests.kernels.kernel_bench import ADDRESS, KernelBench, tensor

PLAIN = Normalisation((1.0, 2.0, 3.0), (0.5, 0.0, -0.5), is_bgr=True, pad_value=114)
IMAGES = tensor(DType.UINT8, 2, 64)
ROWS = tensor(DType.FP16, 2, 3, 17, 300)
IMAGE = SourceImage(ADDRESS, 20, 30, 90)


@pytest.fixture
def bench(tmp_path: Path):
    bench = KernelBench(tmp_path, ["preprocess"])
    yield bench
    bench.close()


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_launch(bench: KernelBench, dtype: DType) -> None:
    rows = tensor(dtype, 2, 3, 17, 300, offset=512)
    launch = prepare_preprocess(bench.kernels, IMAGES, rows, PLAIN, stream=bench.stream)
    run_calls(bench.cuda, [launch])
    ((entry, grid, block, _, _),) = bench.driver.launches
    assert entry == f"preprocess_{dtype.value.lower()}"
    assert (grid, block) == ((3, 3, 2), (64, 2, 1))
    assert bench.driver.argument(0, ctypes.c_uint64).value == ADDRESS
    assert bench.driver.argument(1, ctypes.c_uint64).value == ADDRESS + 512
    assert bench.driver.argument(2, ctypes.c_int).value == 17
    assert bench.driver.argument(3, ctypes.c_int).value == 300
    scale = bench.driver.argument(4, NormalisationArgument)
    assert [*scale.factor, *scale.offset] == [1, 2, 3, 0.5, 0, -0.5]
    assert (scale.is_bgr, scale.pad_value) == (1, 114)


@pytest.mark.parametrize(
    ("images", "rows", "message"),
    [
        (tensor(DType.UINT8, 3, 64), ROWS, "'images' is"),
        (tensor(DType.UINT8, 2, 63), ROWS, "'images' is"),
        (tensor(DType.UINT8, 2, 64, offset=4), ROWS, "multiple of 8"),
        (IMAGES, tensor(DType.UINT8, 2, 3, 17, 300), "'rows' is"),
        (IMAGES, tensor(DType.FP16, 2, 4, 17, 300), "'rows' is"),
        (IMAGES, tensor(DType.FP16, 2, 3, 17, 16385), "at most 16384 a side"),
    ],
)
def test_arguments_are_checked(bench: KernelBench, images, rows, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        prepare_preprocess(bench.kernels, images, rows, PLAIN, stream=bench.stream)


def test_normalisation_of_a_card() -> None:
    card = PreprocessCard(scale=0.5, mean=(1, 2, 3), std=(2, 4, 8), color="bgr", pad_value=9)
    expected = Normalisation((0.25, 0.125, 0.0625), (-0.5, -0.5, -0.375), is_bgr=True, pad_value=9)
    assert Normalisation.from_card(card) == expected


def test_entry() -> None:
    image = SourceImage(ADDRESS, 20, 30, 32, PixelFormat.NV12, ADDRESS + 640)
    entry = image_entry(image, Placement(-1, 2, 40, 60))
    assert {name: int(entry[name]) for name in entry.dtype.names} == {
        "pixels": ADDRESS,
        "chroma": ADDRESS + 640,
        "height": 20,
        "width": 30,
        "pitch_bytes": 32,
        "chroma_pitch_bytes": 32,
        "format": 2,
        "top": -1,
        "left": 2,
        "scaled_height": 40,
        "scaled_width": 60,
    }


@pytest.mark.parametrize(
    ("changes", "placement"),
    [
        ({"height": 0}, Placement(0, 0, 4, 4)),
        ({"width": 65536, "pitch_bytes": 3 << 16}, Placement(0, 0, 4, 4)),
        ({}, Placement(0, 0, 0, 4)),
        ({}, Placement(0, 0, 16385, 4)),
        ({"pitch_bytes": 89}, Placement(0, 0, 4, 4)),
        ({"format": PixelFormat.NV12}, Placement(0, 0, 4, 4)),
        ({"format": PixelFormat.NV12, "height": 19, "chroma_address": ADDRESS}, Placement(0, 0, 4, 4)),
    ],
)
def test_entries_that_the_kernel_cannot_work_with(changes: dict[str, object], placement: Placement) -> None:
    image_entry(IMAGE, Placement(0, 0, 4, 4))
    with pytest.raises(DeviceError):
        image_entry(dataclasses.replace(IMAGE, **changes), placement)

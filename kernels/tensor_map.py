"""Tensor maps: what the copy engine of Hopper and later devices must know about a matrix, made once per launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol

from service.runtime.cuda.api import Code


class TensorMap(ctypes.Structure):
    """`struct TensorMap` of `csrc/hopper.cuh`, a parameter: `CUtensorMap`, whose words the driver alone reads."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)


class EncodedMap(Protocol):
    """The binding's `CUtensorMap`."""

    opaque: Sequence[int]


class DataType(Protocol):
    """The elements' types that are used."""

    CU_TENSOR_MAP_DATA_TYPE_FLOAT16: IntEnum


class Interleave(Protocol):
    """None is."""

    CU_TENSOR_MAP_INTERLEAVE_NONE: IntEnum


class Swizzle(Protocol):
    """How rows are permuted in shared memory."""

    CU_TENSOR_MAP_SWIZZLE_128B: IntEnum


class L2Promotion(Protocol):
    """How much is fetched at once."""

    CU_TENSOR_MAP_L2_PROMOTION_L2_256B: IntEnum


class FloatFill(Protocol):
    """What stands beyond the matrix: zeros."""

    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: IntEnum


class TensorMapApi(Protocol):
    """The part of `cuda.bindings.driver` that makes tensor maps."""

    cuTensorMapEncodeTiled: Callable[..., tuple[Code, EncodedMap]]
    cuuint32_t: Callable[[int], object]
    cuuint64_t: Callable[[int], object]
    CUtensorMapDataType: DataType
    CUtensorMapInterleave: Interleave
    CUtensorMapSwizzle: Swizzle
    CUtensorMapL2promotion: L2Promotion
    CUtensorMapFloatOOBfill: FloatFill


def encode_halves(
    driver: TensorMapApi, address: int, dims: tuple[int, int], box: tuple[int, int]
) -> tuple[Code, EncodedMap]:
    """Asks for the map of FP16[rows, columns], C order, in device memory, for boxes that lie 128-byte swizzled.

    Args:
        driver: makes it.
        address: of the first element; a multiple of 16.
        dims: rows and columns; a row's bytes are a multiple of 16.
        box: rows and columns that one copy moves; at most 256 rows, of 64 columns.

    Returns:
        The driver's code, to be checked, and the map.
    """
    (rows, columns), (box_rows, box_columns) = dims, box
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        address,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(columns * 2)],
        [driver.cuuint32_t(box_columns), driver.cuuint32_t(box_rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )

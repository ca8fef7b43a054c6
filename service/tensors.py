"""Data types, tensor specifications and bounded shape arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

BATCH_DIM = "batch"
"""Name of the leading dimension of every tensor of a model that has a batch dimension."""

Dim = int | str
"""A fixed extent, or the name of a dynamic dimension."""

HostArray = npt.NDArray[np.generic]
"""A C-contiguous array in host memory. BF16 travels as uint16 bits, BYTES as an object array of bytes."""

HOST_ALIGNMENT_BYTES = 64
"""Where host memory begins that a model computes on as it lies: what ONNX Runtime aligns its own tensors to."""

IN_PLACE_FROM_BYTES = 128 << 10
"""From this size on a request is computed on where it arrived; below it, copying costs less than binding."""


class DType(Enum):
    """Data types of the Open Inference Protocol; the value is the name on the wire."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type that holds one element on the host (BF16: uint16 bits; BYTES: object)."""
        return _NUMPY_BY_DTYPE[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for BYTES, whose elements differ in size."""
        return 0 if self is DType.BYTES else _NUMPY_BY_DTYPE[self].itemsize

    @property
    def is_integer(self) -> bool:
        """Whether the elements are signed or unsigned integers (BOOL and BF16 are not)."""
        return self.value.startswith(("INT", "UINT"))


_NUMPY_BY_DTYPE: dict[DType, np.dtype[np.generic]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.UINT8: np.dtype(np.uint8),
    DType.UINT16: np.dtype(np.uint16),
    DType.UINT32: np.dtype(np.uint32),
    DType.UINT64: np.dtype(np.uint64),
    DType.INT8: np.dtype(np.int8),
    DType.INT16: np.dtype(np.int16),
    DType.INT32: np.dtype(np.int32),
    DType.INT64: np.dtype(np.int64),
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.FP32: np.dtype(np.float32),
    DType.FP64: np.dtype(np.float64),
    DType.BYTES: np.dtype(np.object_),
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named input or output of a model.

    Attributes:
        name: the tensor's name in the model.
        dtype: element type.
        dims: extents, the batch dimension (named `BATCH_DIM`) included where the model has one.
    """

    name: str
    dtype: DType
    dims: tuple[Dim, ...]

    @property
    def wire_shape(self) -> list[int]:
        """The shape as metadata shows it: -1 for every dynamic dimension."""
        return [dim if isinstance(dim, int) else -1 for dim in self.dims]

    def resolve(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The concrete shape for given sizes of the named dimensions.

        Raises:
            KeyError: a dimension of this tensor has no size in `sizes`.
        """
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


def aligned(nbytes: int) -> int:
    """`nbytes`, rounded up so that what follows is aligned to `HOST_ALIGNMENT_BYTES`."""
    return -(-nbytes // HOST_ALIGNMENT_BYTES) * HOST_ALIGNMENT_BYTES


def first_not_utf8(values: HostArray) -> int | None:
    """Flat index of the first element of a BYTES array that is not UTF-8, or None.

    ONNX Runtime takes no other text, so input is refused by this before it joins a batch.
    """
    for index, value in enumerate(values.flat):
        try:
            value.decode()
        except UnicodeDecodeError:
            return index
    return None


def element_count(shape: Sequence[int]) -> int:
    """Product of the extents, in unbounded integers: no overflow, whatever a client sends."""
    count = 1
    for extent in shape:
        count *= extent
    return count

"""Tensors into shared memory and out of it: pure functions of arrays, offsets and specifications.

A region is given as uint8 memory of one dimension. Tensors of fixed-size elements lie in it, aligned as models want it;
BYTES, and what has no room there, travel inline.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.api.oip_binary import bytes_array
from service.buckets import DimSizes, Form
from service.models import ModelSpec
from service.tensors import DType, HostArray, TensorSpec, aligned, element_count
from service.transport.descriptors import INLINE, Placed
from service.transport.wire import Malformed

MAX_KNOWN_SIZES = 1024
"""Combinations of rows, dims and outputs whose bytes are remembered: a model served at exact sizes may have any."""


class Tensors(NamedTuple):
    """Tensors placed.

    Attributes:
        placed: where each lies, in their order.
        inline: those that lie nowhere else, in their order.
    """

    placed: tuple[Placed, ...]
    inline: tuple[bytes, ...]


def input_specs(spec: ModelSpec, form: Form) -> tuple[TensorSpec, ...]:
    """What requests of a form bring."""
    return spec.media.inputs if form is Form.MEDIA and spec.media is not None else spec.inputs


def output_specs(spec: ModelSpec, form: Form) -> tuple[TensorSpec, ...]:
    """What requests of a form get."""
    return spec.media.outputs if form is Form.MEDIA and spec.media is not None else spec.outputs


class ResultSizes:
    """How much room the outputs of a model's requests take, as far as that is known before they run.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._known: dict[tuple[int, DimSizes, tuple[int, ...], Form], int] = {}

    def nbytes(self, rows: int, dims: DimSizes, outputs: tuple[int, ...], form: Form) -> int:
        """Bytes for the wanted outputs that have a fixed size; the others travel inline."""
        key = (rows, dims, outputs, form)
        nbytes = self._known.get(key)
        if nbytes is None:
            if len(self._known) >= MAX_KNOWN_SIZES:
                self._known.clear()
            nbytes = self._known[key] = self._compute(rows, dims, outputs, form)
        return nbytes

    def _compute(self, rows: int, dims: DimSizes, outputs: tuple[int, ...], form: Form) -> int:
        sizes, total = self._spec.dim_sizes(dims, rows), 0
        tensors = output_specs(self._spec, form)
        for tensor in (tensors[index] for index in outputs):
            if tensor.dtype is not DType.BYTES and all(type(dim) is int or dim in sizes for dim in tensor.dims):
                total += aligned(element_count(tensor.resolve(sizes)) * tensor.dtype.itemsize)
        return total


def place(arrays: Sequence[HostArray], region: memoryview, offset: int, nbytes: int) -> Tensors:
    """Copies arrays into `nbytes` bytes of a region from `offset` on, as far as they have room there."""
    end = offset + nbytes
    placed, inline = [], []
    for array in arrays:
        size = 0 if array.dtype.hasobject else array.nbytes
        if 0 < size <= end - offset:
            region[offset : offset + size] = raw(array)
            placed.append(Placed(offset, size, array.shape))
            offset += aligned(size)
        else:
            content = pickle.dumps(array.reshape(-1).tolist()) if array.dtype.hasobject else array.tobytes()
            placed.append(Placed(INLINE, len(content), array.shape))
            inline.append(content)
    return Tensors(tuple(placed), tuple(inline))


def raw(array: HostArray) -> memoryview:
    """The bytes of a C-contiguous array of fixed-size elements, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def take_up(
    placed: Sequence[Placed], inline: memoryview, tensors: Sequence[TensorSpec], region: memoryview
) -> tuple[HostArray, ...]:
    """Arrays of what was placed: views on the region, or own copies of what came inline.

    Args:
        placed: where each lies.
        inline: what came with the message.
        tensors: what each is.
        region: the memory; the arrays are read-only where it is.

    Raises:
        Malformed: something lies outside the region or the message, or has another size than its shape.
    """
    if len(placed) != len(tensors):
        raise Malformed(f"{len(placed)} tensors came, expected {len(tensors)}")
    arrays = []
    start = 0
    for (offset, nbytes, shape), tensor in zip(placed, tensors, strict=True):
        if offset == INLINE:
            if not 0 <= nbytes <= len(inline) - start:
                raise Malformed(f"tensor '{tensor.name}' has {nbytes} bytes inline, {len(inline) - start} are left")
            arrays.append(_from_inline(inline[start : start + nbytes], shape, tensor))
            start += nbytes
        else:
            arrays.append(_from_region(region, offset, nbytes, shape, tensor))
    return tuple(arrays)


def _from_region(region: memoryview, offset: int, nbytes: int, shape: tuple[int, ...], tensor: TensorSpec) -> HostArray:
    if tensor.dtype is DType.BYTES:
        raise Malformed(f"tensor '{tensor.name}' is BYTES, which travel inline alone")
    if offset < 0:
        raise Malformed(f"tensor '{tensor.name}' lies at {offset}")  # NumPy would read before the region
    try:
        array: HostArray = np.ndarray(shape, tensor.dtype.numpy, region, offset)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise Malformed(f"tensor '{tensor.name}' of shape {shape} at {offset}: {error}") from None
    if array.nbytes != nbytes:
        raise Malformed(f"tensor '{tensor.name}' of shape {shape} has {nbytes} bytes")
    return array


def _from_inline(content: memoryview, shape: tuple[int, ...], tensor: TensorSpec) -> HostArray:
    try:
        if tensor.dtype is DType.BYTES:
            return bytes_array(pickle.loads(content), shape)
        # A copy of its own: the message is unaligned, and read-only.
        return np.frombuffer(bytearray(content), tensor.dtype.numpy).reshape(shape)
    except Exception as error:
        # Unpickling raises whatever it meets.
        raise Malformed(f"tensor '{tensor.name}' of shape {shape}: {error!r}") from None

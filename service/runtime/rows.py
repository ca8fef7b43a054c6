"""Rows into a batch and out of it again: padded, cropped, and nothing of one request in another's.

Every element of a bucket is written for every batch: with a request's data, or with padding. What an
earlier batch left in the same memory can therefore not be seen by a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.buckets import Bucket, DimSizes
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.padding import pad_values
from service.tensors import BATCH_DIM, DType, HostArray, TensorSpec

FILLED_AT_ONCE_BYTES = 128 << 10
"""Up to here an input is filled within the time that padding one request takes."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """How a request's part lies in the padded array of one tensor.

    Attributes:
        tensor: the input or output.
        has_rows: whether the leading axis holds the requests' rows one after another.
        axes: (axis, index into the request's dims) of every axis that follows a dynamic dimension.
        pad: value of padding, of inputs alone; str for BYTES, as ONNX Runtime takes them.
    """

    tensor: TensorSpec
    has_rows: bool
    axes: tuple[tuple[int, int], ...]
    pad: np.generic | str = ""

    def copy_in(self, host: HostArray, values: HostArray, row: int, dims: DimSizes) -> None:
        """Writes one request's values into its rows and padding around them.

        Args:
            host: dtype[padded shape], the batch's array.
            values: dtype[the request's own shape].
            row: where its rows begin.
            dims: its sizes of the dynamic dimensions.
        """
        region = host[row : row + len(values)] if self.has_rows else host
        if region.shape == values.shape:
            region[...] = _text(values) if self.tensor.dtype is DType.BYTES else values
            return
        index = [slice(None)] * region.ndim
        for axis, dim in self.axes:
            size = dims[dim]
            if size < region.shape[axis]:
                index[axis] = slice(size, None)
                region[tuple(index)] = self.pad
                index[axis] = slice(size)
        self.copy_values(host, values, row)

    def copy_values(self, host: HostArray, values: HostArray, row: int) -> None:
        """Writes one request's values alone; what is padding around them stands there already.

        Args:
            host: dtype[padded shape], the batch's array.
            values: dtype[the request's own shape].
            row: where its rows begin.
        """
        index = [slice(extent) for extent in values.shape]
        if self.has_rows:
            index[0] = slice(row, row + len(values))
        host[tuple(index)] = _text(values) if self.tensor.dtype is DType.BYTES else values

    def copy_out(self, host: HostArray, row: int, rows: int, dims: DimSizes) -> HostArray:
        """One request's part of an output, without padding: C-contiguous, in memory of its own."""
        region = self.part(host, row, rows, dims)
        return _encoded(region) if self.tensor.dtype is DType.BYTES else region.copy()

    def part(self, host: HostArray, row: int, rows: int, dims: DimSizes) -> HostArray:
        """One request's part of an output, without padding, where it lies."""
        region = host[row : row + rows] if self.has_rows else host
        if self.axes:
            index = [slice(None)] * region.ndim
            for axis, dim in self.axes:
                index[axis] = slice(dims[dim])
            region = region[tuple(index)]
        return region


def tensor_plan(spec: ModelSpec, tensor: TensorSpec, pad: np.generic | str) -> TensorPlan:
    """The plan of any tensor whose dimensions have the model's names; `pad` is what an input is filled up with."""
    names = spec.buckets.dim_names
    axes = tuple((axis, names.index(str(dim))) for axis, dim in enumerate(tensor.dims) if dim in names)
    return TensorPlan(tensor, spec.has_batch_dim and tensor.dims[:1] == (BATCH_DIM,), axes, pad)


def input_plans(spec: ModelSpec) -> tuple[TensorPlan, ...]:
    """The plan of every input.

    Raises:
        CardError: a pad value does not fit its input.
    """
    return tuple(
        tensor_plan(spec, tensor, pad.decode() if isinstance(pad, bytes) else pad)
        for tensor, pad in zip(spec.inputs, pad_values(spec), strict=True)
    )


def output_plans(spec: ModelSpec) -> tuple[TensorPlan, ...]:
    """The plan of every output: an axis is cropped where it bears the name of an input's dimension."""
    return tuple(tensor_plan(spec, tensor, "") for tensor in spec.outputs)


def gather(batch: Batch, plans: tuple[TensorPlan, ...], host_inputs: tuple[HostArray, ...]) -> None:
    """Copies all requests' rows into the padded inputs and clears the rows after them.

    A small input is filled with padding at once, where several requests leave some: to do it for each takes longer.
    """
    dims = batch.bucket.dims
    is_mixed = len(batch.requests) > 1 and any(request.dims != dims for request in batch.requests)
    for index, (plan, host) in enumerate(zip(plans, host_inputs, strict=True)):
        is_filled = is_mixed and bool(plan.axes) and host.nbytes <= FILLED_AT_ONCE_BYTES
        if is_filled:
            host[...] = plan.pad
        row = 0
        for request in batch.requests:
            if is_filled:
                plan.copy_values(host, request.inputs[index], row)
            else:
                plan.copy_in(host, request.inputs[index], row, request.dims)
            row += request.rows
        if plan.has_rows and row < len(host) and not is_filled:
            host[row:] = plan.pad


def scatter(
    batch: Batch, plans: tuple[TensorPlan, ...], host_outputs: tuple[HostArray, ...]
) -> tuple[tuple[HostArray, ...], ...]:
    """Per request, the outputs that it asked for, in memory of their own."""
    results = []
    row = 0
    for request in batch.requests:
        rows, dims = request.rows, request.dims
        results.append(tuple([plans[i].copy_out(host_outputs[i], row, rows, dims) for i in request.outputs]))
        row += rows
    return tuple(results)


def refuse_second_batch_axis(spec: ModelSpec) -> None:
    """Rows can be joined along the leading dimension alone.

    Raises:
        ModelLoadFailed: an input has the batch in another dimension too.
    """
    for tensor in spec.inputs if spec.has_batch_dim else ():
        if BATCH_DIM in tensor.dims[1:]:
            raise ModelLoadFailed(
                f"input '{tensor.name}' of model '{spec.name}' has the batch in more than its leading dimension: "
                f"{list(tensor.dims)}, so rows cannot be joined; rename it in [dims], or set max_batch_size = 0 "
                "in [batching]"
            )


def misfit(spec: ModelSpec, bucket: Bucket, output_shapes: Sequence[tuple[int, ...]]) -> str | None:
    """Why outputs of these shapes are not one row per row of the batch, or None if they are."""
    for tensor, shape in zip(spec.outputs, output_shapes, strict=True):
        is_per_row = shape[:1] == (bucket.padded_size,)
        if tensor.dims[:1] == (BATCH_DIM,) and spec.has_batch_dim and not is_per_row:
            return (
                f"output '{tensor.name}' of model '{spec.name}' has shape {list(shape)} for a batch of "
                f"{bucket.padded_size}, so its rows are not the batch's; set max_batch_size = 0 in [batching]"
            )
    return None


def _text(values: HostArray) -> HostArray:
    """BYTES as str; that they are UTF-8 was checked before the request was queued."""
    text = np.empty(values.size, np.object_)
    text[:] = [value.decode() for value in values.flat]
    return text.reshape(values.shape)


def _encoded(text: HostArray) -> HostArray:
    values = np.empty(text.size, np.object_)
    values[:] = [value.encode() for value in text.flat]
    return values.reshape(text.shape)

"""One bucket on one session: the padded inputs in host memory and the model run on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from service.buckets import Bucket
from service.models import ModelSpec
from service.runtime.onnx.buffers import HostScratch
from service.runtime.onnx.session import element_type, refuses
from service.tensors import DType, HostArray, TensorSpec, element_count

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue

Shape: TypeAlias = tuple[int, ...]

_CPU = "cpu"


class BucketRun(Protocol):
    """What a lane needs of a bucket. `execute` raises whatever ONNX Runtime raises."""

    @property
    def host_inputs(self) -> tuple[HostArray, ...]:
        """Per input dtype[padded shape], C-contiguous; to be filled before `execute`."""

    @property
    def proven_shapes(self) -> tuple[Shape, ...] | None:
        """The outputs' shapes when the bucket was warmed, or None if it was not."""

    def execute(self) -> tuple[HostArray, ...]:
        """Runs the model, GIL released; the outputs are valid until the next `execute`."""

    def is_refused(self) -> bool:
        """Whether some operator refuses the values in `host_inputs`, such as an index out of bounds.

        Asked after `execute` has failed. A bound run loses ONNX Runtime's status, so this runs the model once more.
        """


def joinable(spec: ModelSpec, bucket: Bucket, proven: Sequence[Shape] | None, shapes: Sequence[Shape]) -> bool:
    """Whether outputs of these shapes can be shared out among several requests.

    A dimension that no input names may depend on the values: then one request decides the shape of another's answer.
    It may be shared where it came out as it did on padding alone, when the bucket was warmed.

    Args:
        spec: the model.
        bucket: the shape that ran.
        proven: the outputs' shapes at warm-up, or None for a bucket that was not warmed.
        shapes: what came out now.
    """
    sizes = spec.dim_sizes(bucket.dims, bucket.padded_size)
    return all(
        (proven is not None and shape == proven[index])
        or (has_known_shape(tensor, sizes) and shape == tensor.resolve(sizes))
        for index, (tensor, shape) in enumerate(zip(spec.outputs, shapes, strict=True))
    )


def has_known_shape(tensor: TensorSpec, sizes: Mapping[str, int]) -> bool:
    """Whether every dynamic dimension of an output bears the name of an input's."""
    return all(isinstance(dim, int) or dim in sizes for dim in tensor.dims)


class BoundRun:
    """A run whose inputs, and outputs where their shapes are known, are bound to host memory for good."""

    def __init__(self, session: InferenceSession, spec: ModelSpec, bucket: Bucket, host_scratch: HostScratch) -> None:
        self._session = session
        self._sizes = spec.dim_sizes(bucket.dims, bucket.padded_size)
        self._binding = session.io_binding()
        self.host_inputs = tuple(host_scratch.take(t, t.resolve(self._sizes)) for t in spec.inputs)
        for tensor, host in zip(spec.inputs, self.host_inputs, strict=True):
            self._binding.bind_input(tensor.name, _CPU, 0, element_type(tensor.dtype), host.shape, host.ctypes.data)
        self._inputs = spec.inputs
        self._outputs = spec.outputs
        self._host_bound: dict[int, HostArray] = {}
        self._bound_outputs: tuple[HostArray, ...] | None = None
        self.proven_shapes: tuple[Shape, ...] | None = None

    def execute(self) -> tuple[HostArray, ...]:
        """As `BucketRun.execute`."""
        if self._bound_outputs is not None:
            self._session.run_with_iobinding(self._binding)
            return self._bound_outputs
        self._bind_outputs()
        self._session.run_with_iobinding(self._binding)
        values = self._binding.get_outputs()
        return tuple(
            self._host_bound[index] if index in self._host_bound else _view(value, tensor.dtype)
            for index, (tensor, value) in enumerate(zip(self._outputs, values, strict=True))
        )

    def is_refused(self) -> bool:
        """As `BucketRun.is_refused`."""
        return refuses(self._session, self._inputs, self.host_inputs)

    @property
    def has_known_outputs(self) -> bool:
        """Whether every output's shape follows from the bucket alone."""
        return self._bound_outputs is not None

    def keep_outputs(self, host_outputs: tuple[HostArray, ...], host_scratch: HostScratch) -> None:
        """Gives memory to the outputs whose shapes cannot change between runs; the others stay with ONNX Runtime.

        Args:
            host_outputs: what the first `execute` returned.
            host_scratch: where the memory comes from.
        """
        self.proven_shapes = tuple(host.shape for host in host_outputs)
        for index, (tensor, host) in enumerate(zip(self._outputs, host_outputs, strict=True)):
            if self._is_shape_known(tensor, host.shape):
                self._host_bound[index] = host_scratch.take(tensor, host.shape)
        self._bind_outputs()
        if len(self._host_bound) == len(self._outputs):
            self._bound_outputs = tuple(self._host_bound[index] for index in range(len(self._outputs)))

    def _is_shape_known(self, tensor: TensorSpec, shape: tuple[int, ...]) -> bool:
        """Whether the model declares this very shape in terms of its inputs' dimensions; else data may decide it."""
        if not has_known_shape(tensor, self._sizes):
            return False
        return tensor.resolve(self._sizes) == shape and element_count(shape) > 0

    def _bind_outputs(self) -> None:
        """Binds every output anew: ONNX Runtime would take one that it allocated itself for a buffer of ours."""
        for index, tensor in enumerate(self._outputs):
            host = self._host_bound.get(index)
            if host is None:
                self._binding.bind_output(tensor.name, _CPU)
            else:
                self._binding.bind_output(
                    tensor.name, _CPU, 0, element_type(tensor.dtype), host.shape, host.ctypes.data
                )


class TextRun:
    """A run of a model with BYTES tensors, which cannot be bound: ONNX Runtime copies them in and out as str."""

    proven_shapes: tuple[Shape, ...] | None = None

    def __init__(self, session: InferenceSession, spec: ModelSpec, bucket: Bucket) -> None:
        sizes = spec.dim_sizes(bucket.dims, bucket.padded_size)
        self._session = session
        self._inputs = spec.inputs
        self._input_names = [tensor.name for tensor in spec.inputs]
        self._output_names = [tensor.name for tensor in spec.outputs]
        self.host_inputs = tuple(np.empty(t.resolve(sizes), t.dtype.numpy) for t in spec.inputs)

    def execute(self) -> tuple[HostArray, ...]:
        """As `BucketRun.execute`."""
        feeds = dict(zip(self._input_names, self.host_inputs, strict=True))
        return tuple(np.asarray(output) for output in self._session.run(self._output_names, feeds))

    def is_refused(self) -> bool:
        """As `BucketRun.is_refused`."""
        return refuses(self._session, self._inputs, self.host_inputs)


def has_text(spec: ModelSpec) -> bool:
    """Whether some tensor holds BYTES."""
    return any(tensor.dtype is DType.BYTES for tensor in (*spec.inputs, *spec.outputs))


class _OrtMemory:
    """Lends the memory of one value to NumPy, and keeps the value alive as long as an array uses it."""

    def __init__(self, value: OrtValue, dtype: DType) -> None:
        self.value = value
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(value.shape()),
            "typestr": dtype.numpy.str,
            "data": (value.data_ptr(), False),
        }


def _view(value: OrtValue, dtype: DType) -> HostArray:
    """ONNX Runtime's own memory as an array; `OrtValue.numpy` would copy it, and cannot for BF16."""
    if 0 in value.shape():
        return np.empty(value.shape(), dtype.numpy)
    return np.asarray(_OrtMemory(value, dtype))

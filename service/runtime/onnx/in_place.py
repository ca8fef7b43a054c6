"""A run on a request's own memory: for one large request that fills its bucket, copying would be most of the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from service.buckets import Bucket
from service.models import ModelSpec
from service.requests import Batch, InferenceRequest
from service.runtime.onnx.session import element_type, refuses
from service.tensors import HOST_ALIGNMENT_BYTES, IN_PLACE_FROM_BYTES, HostArray

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def fits_in_place(batch: Batch) -> bool:
    """Whether a batch is one request whose tensors are, as they lie, the bucket's padded tensors."""
    if len(batch.requests) > 1 or batch.size != batch.bucket.padded_size:
        return False
    request = batch.requests[0]
    return (
        request.nbytes >= IN_PLACE_FROM_BYTES
        and request.dims == batch.bucket.dims
        and all(host_input.ctypes.data % HOST_ALIGNMENT_BYTES == 0 for host_input in request.inputs)
    )


class InPlaceRun:
    """Reads one request's inputs where they lie, and writes its outputs to memory that will be the request's own.

    `proven_shapes` is None: there is nobody to share the outputs with.

    Args:
        session: the lane's.
        spec: its model; every output's shape follows from the bucket.
        bucket: what the request fills.
        request: its inputs are not written to, and must live until the run is over.
    """

    proven_shapes: tuple[tuple[int, ...], ...] | None = None

    def __init__(self, session: InferenceSession, spec: ModelSpec, bucket: Bucket, request: InferenceRequest) -> None:
        self._session = session
        self._spec = spec
        self.host_inputs = request.inputs
        sizes = spec.dim_sizes(bucket.dims, bucket.padded_size)
        self._host_outputs = tuple(np.empty(t.resolve(sizes), t.dtype.numpy) for t in spec.outputs)
        self._binding = session.io_binding()
        for tensor, host in zip(spec.inputs, self.host_inputs, strict=True):
            self._binding.bind_input(tensor.name, "cpu", 0, element_type(tensor.dtype), host.shape, host.ctypes.data)
        for tensor, host in zip(spec.outputs, self._host_outputs, strict=True):
            self._binding.bind_output(tensor.name, "cpu", 0, element_type(tensor.dtype), host.shape, host.ctypes.data)

    def execute(self) -> tuple[HostArray, ...]:
        """As `BucketRun.execute`, but the outputs stay valid."""
        self._session.run_with_iobinding(self._binding)
        return self._host_outputs

    def is_refused(self) -> bool:
        """As `BucketRun.is_refused`."""
        return refuses(self._session, self._spec.inputs, self.host_inputs)

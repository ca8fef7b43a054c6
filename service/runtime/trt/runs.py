"""One bucket on one buffer set: a context bound to both for life, and the copies of its inputs and outputs."""

from __future__ import annotations

import numpy as np

from service.errors import ExecutionFailed
from service.models import ModelSpec
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.copies import copy_d2h, copy_h2d, fill, prepare_d2h
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.rows import input_plans
from service.runtime.synthetic import SEED, synthetic_values
from service.runtime.trt.buffers import POISON_BYTE, BufferSet, Layout
from service.runtime.trt.context import Context
from service.runtime.trt.data_dependent import DataDependentOutputs
from service.runtime.trt.engine import Engine, trt_check
from service.runtime.trt.feeds import Feed, TensorFeed
from service.runtime.trt.profiles import BucketShapes, is_data_dependent
from service.tensors import HostArray


class BucketRun:
    """Copies in, executes and copies out in one bucket's shapes. Every method only gives work to a stream.

    Attributes:
        buffers: the set that it is bound to.
        feed: how a batch's rows get into its pinned inputs.
        context_bytes: device memory that its context took, as its owner measured.
        sized_by_data: names of the outputs whose sizes depend on the data.
        data_dependent: their memory; None where there are none.
    """

    def __init__(self, cuda: Cuda, engine: Engine, spec: ModelSpec, shapes: BucketShapes, buffers: BufferSet) -> None:
        self._cuda = cuda
        self._engine = engine
        self._shapes = shapes
        self._inputs = Layout.of(spec.inputs, shapes.inputs)
        self._outputs = Layout.of(spec.outputs, shapes.buffered_outputs)
        self._context: Context | None = None
        self._call = f"a batch of model '{spec.name}' in bucket {shapes.bucket.label}"
        self.buffers = buffers
        self.context_bytes = 0
        self._host_inputs: tuple[HostArray, ...] = tuple(
            buffers.pinned_inputs.host(tensor.dtype.numpy, shape, offset)
            for tensor, shape, offset in zip(spec.inputs, shapes.inputs, self._inputs.offsets, strict=True)
        )
        self._host_outputs: tuple[HostArray, ...] = tuple(
            buffers.pinned_outputs.host(tensor.dtype.numpy, shape, offset)
            for tensor, shape, offset in zip(spec.outputs, shapes.buffered_outputs, self._outputs.offsets, strict=True)
        )
        self.feed: Feed = TensorFeed(input_plans(spec), self._host_inputs, self._inputs.offsets, self._inputs.nbytes)
        sized_by_data = [
            tensor for tensor, shape in zip(engine.outputs, shapes.outputs, strict=True) if is_data_dependent(shape)
        ]
        self.sized_by_data = {tensor.name for tensor in sized_by_data}
        self.data_dependent: DataDependentOutputs | None = None
        if sized_by_data:
            self.data_dependent = DataDependentOutputs(cuda, engine.flavour.module, sized_by_data)

    @property
    def host_outputs(self) -> tuple[HostArray, ...]:
        """dtype[padded shape] pinned, per output; valid once `download` is done."""
        if self.data_dependent is None:
            return self._host_outputs
        return tuple(
            self.data_dependent.host(tensor.name) if tensor.name in self.sized_by_data else host
            for tensor, host in zip(self._engine.outputs, self._host_outputs, strict=True)
        )

    def bind(self, scratch: DeviceBuffer | None, *, stream: Stream) -> None:
        """Makes the context and binds it: profile, shapes, scratch, addresses.

        Args:
            scratch: shared by all runs of the lane, whose engines execute one after another.
            stream: the one that this one executes on.

        Raises:
            ModelLoadFailed: TensorRT refuses.
        """
        engine, buffers = self._engine, self.buffers
        self._context = Context.create(engine, self._shapes.profile, stream=stream)
        self._context.bind_shapes(self._shapes.inputs)
        addresses = {
            tensor.name: buffers.device_inputs.address + offset
            for tensor, offset in zip(engine.inputs, self._inputs.offsets, strict=True)
        }
        for tensor, offset in zip(engine.outputs, self._outputs.offsets, strict=True):
            if tensor.name not in self.sized_by_data:
                addresses[tensor.name] = buffers.device_outputs.address + offset
        self._context.bind_memory(scratch, addresses)
        if self.data_dependent is not None:
            most_bytes = self._context.bind_allocator(self.sized_by_data, self.data_dependent.native)
            self.data_dependent.reserve(most_bytes)

    @property
    def data_dependent_bytes(self) -> int:
        """Device memory of the outputs whose sizes depend on the data."""
        return self.data_dependent.device_bytes if self.data_dependent is not None else 0

    @property
    def upload_address(self) -> int:
        """Device address that the pinned inputs are copied to."""
        return self.buffers.device_inputs.address

    @property
    def h2d_bytes(self) -> int:
        """What `upload` copies."""
        return self._inputs.nbytes

    @property
    def d2h_bytes(self) -> int:
        """What `download` copies, after the latest run where that depends on the data."""
        fixed_bytes = self._outputs.nbytes
        return fixed_bytes if self.data_dependent is None else fixed_bytes + self.data_dependent.d2h_bytes

    def upload(self, *, stream: Stream) -> None:
        """Copies the inputs to the device, all tensors at once."""
        buffers = self.buffers
        copy_h2d(
            self._cuda,
            buffers.device_inputs.address,
            buffers.pinned_inputs.address,
            self._inputs.nbytes,
            stream=stream,
        )

    def fill_inputs(self) -> None:
        """Puts synthetic values into the pinned inputs, the same every time."""
        rng = np.random.default_rng(SEED)
        for tensor, host in zip(self._engine.inputs, self._host_inputs, strict=True):
            host[...] = synthetic_values(rng, tensor.dtype, host.shape)

    def poison_outputs(self, *, stream: Stream) -> None:
        """Overwrites what an earlier run left on the device."""
        if self._outputs.nbytes:
            fill(self._cuda, self.buffers.device_outputs.address, POISON_BYTE, self._outputs.nbytes, stream=stream)

    def enqueue(self, *, stream: Stream) -> bool:
        """Gives the engine's work to the stream; False if TensorRT refuses, which `take_errors` explains."""
        assert self._context is not None, "bind comes before the first run"
        return self._context.enqueue(stream=stream)

    def execute(self, *, stream: Stream) -> None:
        """`enqueue`, whose refusal is an error.

        Raises:
            ExecutionFailed: TensorRT refuses the batch; the run can be used again.
            DeviceError: there is no memory for an output whose size depends on the data.
        """
        is_enqueued = self.enqueue(stream=stream)
        failure = self.data_dependent.take_failure() if self.data_dependent is not None else None
        if failure is not None:
            self._engine.errors.clear()
            raise failure
        trt_check(is_enqueued, self._call, self._engine.errors, ExecutionFailed)

    def take_errors(self) -> str:
        """What TensorRT said of the latest failure."""
        return self._engine.errors.take()

    def download(self, *, stream: Stream) -> None:
        """Copies the outputs to the host: all tensors at once, but for those whose sizes depend on the data."""
        buffers, nbytes = self.buffers, self._outputs.nbytes
        if nbytes:
            pinned, device = buffers.pinned_outputs.address, buffers.device_outputs.address
            copy_d2h(self._cuda, pinned, device, nbytes, stream=stream)
        self.download_sized_by_data(stream=stream)

    def prepare_download(self, *, stream: Stream) -> tuple[PreparedCall, ...]:
        """`download` for later; without the outputs whose sizes depend on the data."""
        if not self._outputs.nbytes:
            return ()
        pinned, device = self.buffers.pinned_outputs.address, self.buffers.device_outputs.address
        return (prepare_d2h(self._cuda, pinned, device, self._outputs.nbytes, stream=stream),)

    def download_sized_by_data(self, *, stream: Stream) -> None:
        """Copies the outputs to the host whose sizes the latest run has told, if there are any."""
        if self.data_dependent is not None:
            self.data_dependent.download(stream=stream)

    def close(self) -> None:
        """Drops the context; idempotent. Nothing of it may be running, and graphs captured from it are closed."""
        if self._context is not None:
            self._context.close()
        if self.data_dependent is not None:
            self.data_dependent.close()

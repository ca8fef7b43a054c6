"""Outputs whose sizes TensorRT knows only once it has computed them, such as those of NonZero or NMS.

TensorRT asks for their memory while it enqueues, and says their shapes before the enqueue returns. Until then it holds
up the lane's thread, so such buckets have no CUDA Graph.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from service.errors import DeviceError
from service.requests import Clock
from service.runtime.cuda.copies import copy_d2h
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.trt.profiles import Shape
from service.tensors import HostArray, TensorSpec, element_count

RESERVE_BYTES = 64 << 20
"""Up to here an output gets the most it can ever need beforehand; larger ones grow when they must."""


class DataDependentOutputs:
    """Memory of one context's data-dependent outputs, on both sides; grown where it must, never shrunk.

    Used by the lane's thread: TensorRT calls back on the thread that enqueues. The context has no other work in flight
    when it asks for memory, because its buffer set is free then, so what was there before may be freed.

    Attributes:
        native: what TensorRT calls: one object per context, given once.
        allocations: calls that allocated memory beyond what was reserved.
        allocation_ns: what they, and freeing what they replaced, took.
    """

    def __init__(
        self, cuda: Cuda, module: Any, tensors: Sequence[TensorSpec], *, clock: Clock = time.monotonic_ns
    ) -> None:
        self._clock = clock
        self.allocations = 0
        self.allocation_ns = 0
        self._cuda = cuda
        self._dtypes = {tensor.name: tensor.dtype.numpy for tensor in tensors}
        self._device: dict[str, DeviceBuffer] = {}
        self._pinned: dict[str, PinnedBuffer] = {}
        self._shapes: dict[str, Shape] = {}
        self._failure: DeviceError | None = None
        self.native = _native_allocator(module.IOutputAllocator, self)

    @property
    def device_bytes(self) -> int:
        """Device memory that it holds."""
        return sum(buffer.nbytes for buffer in self._device.values())

    @property
    def d2h_bytes(self) -> int:
        """Bytes of the latest run's outputs."""
        return sum(element_count(shape) * self._dtypes[name].itemsize for name, shape in self._shapes.items())

    def reserve(self, most_bytes: Mapping[str, int]) -> None:
        """Allocates beforehand what the outputs can need, as far as `RESERVE_BYTES` each.

        Raises:
            DeviceError: the device or the host has no room for it.
        """
        for name, nbytes in most_bytes.items():
            self._grow_device(name, min(nbytes, RESERVE_BYTES))
            self._grow_pinned(name, min(nbytes, RESERVE_BYTES))

    def give(self, name: str, nbytes: int) -> int:
        """The address of at least `nbytes` for an output; 0, with the cause kept, if there is no such memory."""
        began_ns = self._clock()
        try:
            if self._grow_device(name, nbytes):
                self._count(began_ns)
        except DeviceError as error:
            self._failure = error
            return 0
        return self._device[name].address

    def tell(self, name: str, shape: Shape) -> None:
        """Keeps the shape that the output has in this run."""
        self._shapes[name] = shape

    def take_failure(self) -> DeviceError | None:
        """Why memory was refused since this was last asked."""
        failure, self._failure = self._failure, None
        return failure

    def download(self, *, stream: Stream) -> None:
        """Copies the outputs to the host, in the shapes of the run that `stream` waits for.

        Raises:
            DeviceError: the host has no room for them, or CUDA refused.
        """
        for name, shape in self._shapes.items():
            nbytes = element_count(shape) * self._dtypes[name].itemsize
            began_ns = self._clock()
            if self._grow_pinned(name, nbytes):
                self._count(began_ns)
            if nbytes:
                copy_d2h(self._cuda, self._pinned[name].address, self._device[name].address, nbytes, stream=stream)

    def host(self, name: str) -> HostArray:
        """dtype[shape of the latest run] pinned; valid once its download is done."""
        return self._pinned[name].host(self._dtypes[name], self._shapes[name])

    def close(self) -> None:
        """Frees everything; idempotent. The context is closed before.

        Raises:
            DeviceError: CUDA refused something; the rest is freed all the same.
        """
        with ExitStack() as stack:
            for buffer in (*self._device.values(), *self._pinned.values()):
                stack.callback(buffer.close)
            self._device.clear()
            self._pinned.clear()

    def _count(self, began_ns: int) -> None:
        self.allocations += 1
        self.allocation_ns += self._clock() - began_ns

    def _grow_device(self, name: str, nbytes: int) -> bool:
        """Whether there was too little, and now is enough."""
        old = self._device.get(name)
        if old is not None and old.nbytes >= nbytes:
            return False
        if old is not None:
            del self._device[name]
            old.close()
        self._device[name] = DeviceBuffer(self._cuda, _rounded(nbytes))
        return True

    def _grow_pinned(self, name: str, nbytes: int) -> bool:
        """Likewise."""
        old = self._pinned.get(name)
        if old is not None and old.nbytes >= nbytes:
            return False
        if old is not None:
            del self._pinned[name]
            old.close()
        self._pinned[name] = PinnedBuffer(self._cuda, _rounded(nbytes))
        return True


def _rounded(nbytes: int) -> int:
    """The next power of two, so that slowly growing outputs allocate seldom; at least 1, as nothing has no address."""
    return 1 << max(0, nbytes - 1).bit_length()


def _native_allocator(base: Any, outputs: DataDependentOutputs) -> Any:
    """What TensorRT calls. The class is made here: its base is known once TensorRT is imported."""

    class Allocator(base):  # type: ignore[misc]
        """As TensorRT's interface asks: 8.6 calls the first, later versions the one with a stream."""

        def __init__(self) -> None:
            base.__init__(self)

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            return outputs.give(tensor_name, size)

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return outputs.give(tensor_name, size)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            outputs.tell(tensor_name, tuple(int(extent) for extent in shape))

    return Allocator()

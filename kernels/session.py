"""One device, one stream and the buffers of a trial: for the tests and the bench, where nothing needs to be fast."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from kernels.compile import Toolchain
from kernels.launch import DeviceTensor, DriverApi, Kernels, load_kernels
from kernels.specs import SOURCES
from service.runtime.cuda.calls import PreparedCall, run_calls
from service.runtime.cuda.copies import copy_d2h, copy_h2d, fill
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.graph import Graph, capture
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Stream
from service.tensors import DType

_DTYPES = {dtype.numpy: dtype for dtype in DType if dtype not in (DType.BF16, DType.BYTES)}


class DeviceSession:
    """Owns all that it hands out, until `close`. For the one thread that made it.

    Attributes:
        cuda: the process's CUDA.
        kernels: every source of the package.
        stream: orders everything.
    """

    def __init__(self, cuda: Cuda, kernels: Kernels) -> None:
        self.cuda = cuda
        self.kernels = kernels
        self._stack = ExitStack()
        self._stack.enter_context(kernels)
        self.stream = self._stack.enter_context(Stream(cuda))

    @classmethod
    def open(cls, cuda: Cuda, driver: DriverApi, toolchain: Toolchain, *, cache: Path, device: int) -> DeviceSession:
        """Uses a device on this thread and loads every kernel for it.

        Raises:
            ModelLoadFailed: a source does not compile.
            DeviceError: the device cannot be used.
        """
        cuda.use_device(device)
        return cls(cuda, load_kernels(cuda, driver, toolchain, device=device, cache=cache, sources=tuple(SOURCES)))

    def empty(self, dtype: DType, *shape: int) -> DeviceTensor:
        """Device memory, every byte 0xCD: what a kernel leaves out is seen. Room up to a multiple of 4 bytes."""
        tensor = DeviceTensor(0, dtype, shape, self.kernels.device)
        buffer = self._stack.enter_context(DeviceBuffer(self.cuda, max(4, (tensor.nbytes + 3) // 4 * 4)))
        fill(self.cuda, buffer.address, 0xCD, buffer.nbytes, stream=self.stream)
        return DeviceTensor.within(buffer, dtype, shape, device=self.kernels.device)

    def upload(self, array: npt.NDArray[np.generic]) -> DeviceTensor:
        """A copy of an array in device memory, there when this returns."""
        tensor = self.empty(_DTYPES[array.dtype], *array.shape)
        self.rewrite(tensor, array)
        return tensor

    def rewrite(self, tensor: DeviceTensor, array: npt.NDArray[np.generic]) -> None:
        """Other values for a tensor of the same size."""
        if not array.nbytes:
            return
        with PinnedBuffer(self.cuda, array.nbytes) as pinned:
            pinned.host(np.uint8, (array.nbytes,))[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            copy_h2d(self.cuda, tensor.address, pinned.address, array.nbytes, stream=self.stream)
            self.stream.sync()

    def download(self, tensor: DeviceTensor) -> npt.NDArray[np.generic]:
        """The tensor's values, once all work given so far is done."""
        with PinnedBuffer(self.cuda, max(1, tensor.nbytes)) as pinned:
            copy_d2h(self.cuda, pinned.address, tensor.address, tensor.nbytes, stream=self.stream)
            self.stream.sync()
            values: npt.NDArray[np.generic] = pinned.host(tensor.dtype.numpy, tensor.shape).copy()
            return values

    def run(self, *calls: PreparedCall) -> None:
        """Enqueues and waits.

        Raises:
            DeviceError: a launch or the work itself failed.
        """
        run_calls(self.cuda, calls)
        self.stream.sync()

    def capture(self, *calls: PreparedCall) -> Graph:
        """The calls as one graph; the caller closes it, before the session."""

        def enqueue() -> bool:
            run_calls(self.cuda, calls)
            return True

        return capture(self.cuda, enqueue, stream=self.stream)

    def scope(self) -> ExitStack:
        """Buffers made within `with session.scope():` are freed at its end."""
        outer, self._stack = self._stack, ExitStack()

        def leave() -> None:
            self.stream.sync()
            inner, self._stack = self._stack, outer
            inner.close()

        scope = ExitStack()
        scope.callback(leave)
        return scope

    def close(self) -> None:
        """Frees everything."""
        self._stack.close()

    def __enter__(self) -> DeviceSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

"""Memory that copies can use: pinned on the host, allocated on the device, or registered where it lies.

All of it is allocated at start-up: the driver's locks can hold up an allocation, and everybody else, for milliseconds.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
from numpy.typing import DTypeLike, NDArray

from service.errors import DeviceError
from service.runtime.cuda.check import check
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.resource import Resource


class PinnedBuffer(Resource[int]):
    """Page-locked host memory, for copies from and to every device.

    Args:
        cuda: the process's CUDA.
        nbytes: its size, at least 1.
    """

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        _require_bytes("a pinned buffer", nbytes)
        allocated = cuda.api.cudaHostAlloc(nbytes, cuda.api.cudaHostAllocPortable)
        address = int(check(cuda.api, f"cudaHostAlloc of {nbytes} bytes", allocated))
        super().__init__(cuda, address, LiveCounts(pinned_bytes=nbytes))
        self.nbytes = nbytes
        cuda.page_locked.add(address, nbytes)

    @property
    def address(self) -> int:
        """Where it begins, in host memory."""
        return self.native

    def host(self, dtype: DTypeLike, shape: tuple[int, ...], offset: int = 0) -> NDArray[np.generic]:
        """An array over a part of the buffer, in C order. It must not be touched after the buffer is closed.

        Args:
            dtype: the elements' type; `offset` must be a multiple of its size.
            shape: the array's dims.
            offset: bytes from the start of the buffer.

        Raises:
            DeviceError: the array would leave the buffer, or lie askew in it.
        """
        element = np.dtype(dtype)
        nbytes = math.prod(shape) * element.itemsize
        if not 0 <= offset <= self.nbytes - nbytes or offset % element.itemsize:
            raise DeviceError(
                f"{element.name}{list(shape)} at offset {offset} needs {nbytes} bytes from a multiple of "
                f"{element.itemsize}, in a pinned buffer of {self.nbytes} bytes; allocate it for all its tensors"
            )
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self.native)
        array: NDArray[np.generic] = np.ndarray(shape, element, memoryview(memory), offset)
        return array

    def _release(self, native: int) -> None:
        self._cuda.page_locked.remove(native, self.nbytes)
        check(self._cuda.api, "cudaFreeHost", self._cuda.api.cudaFreeHost(native))


class DeviceBuffer(Resource[int]):
    """Memory on the device of the thread that makes it; its content is undefined at first.

    Args:
        cuda: the process's CUDA.
        nbytes: its size, at least 1.
    """

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        _require_bytes("a device buffer", nbytes)
        address = int(check(cuda.api, f"cudaMalloc of {nbytes} bytes", cuda.api.cudaMalloc(nbytes)))
        super().__init__(cuda, address, LiveCounts(device_bytes=nbytes))
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """Where it begins, in device memory; a multiple of 256."""
        return self.native

    def _release(self, native: int) -> None:
        check(self._cuda.api, "cudaFree", self._cuda.api.cudaFree(native))


class HostRegistration(Resource[int]):
    """Makes memory that somebody else allocated as fast to copy as pinned memory, for as long as it is open.

    Args:
        cuda: the process's CUDA.
        array: contiguous and not empty, such as one over shared memory; kept alive until the close.
    """

    def __init__(self, cuda: Cuda, array: NDArray[np.generic]) -> None:
        _require_bytes("a registration", array.nbytes)
        if not array.flags.c_contiguous:
            raise DeviceError("an array with gaps cannot be registered; give one that is contiguous")
        address = array.ctypes.data
        registered = cuda.api.cudaHostRegister(address, array.nbytes, cuda.api.cudaHostRegisterPortable)
        check(cuda.api, f"cudaHostRegister of {array.nbytes} bytes", registered)
        super().__init__(cuda, address, LiveCounts(registrations=1))
        self._array: NDArray[np.generic] | None = array
        self.nbytes = array.nbytes
        cuda.page_locked.add(address, array.nbytes)

    @property
    def address(self) -> int:
        """Where the array begins, in host memory."""
        return self.native

    def _release(self, native: int) -> None:
        self._cuda.page_locked.remove(native, self.nbytes)
        check(self._cuda.api, "cudaHostUnregister", self._cuda.api.cudaHostUnregister(native))
        self._array = None


def _require_bytes(what: str, nbytes: int) -> None:
    if nbytes < 1:
        raise DeviceError(f"{what} of {nbytes} bytes was asked for; the least is 1")

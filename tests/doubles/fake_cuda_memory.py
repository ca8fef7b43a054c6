"""Memory of the CUDA double: blocks of the device and pinned ones, whose late, double or far use is noticed."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tests.doubles.fake_cuda_core import api_call
from tests.doubles.fake_cuda_streams import FakeStreams
from tests.doubles.fake_cuda_types import Block, Exec, Failed, cudaError_t

E = cudaError_t


class FakeMemory(FakeStreams):
    """Gives memory out, takes it back when no work can still use it, and opens it to work that may use it.

    Attributes:
        pageable_copies: asynchronous copies whose host side was neither pinned nor registered.
        graph_bytes: what every instantiated graph takes of the device.
        library_bytes: what libraries such as TensorRT have allocated on their own, by device.
    """

    cudaHostAllocPortable = 1
    cudaHostRegisterPortable = 1

    def __init__(self, *, total_bytes: int, clock: Callable[[], int] | None, is_deferred: bool) -> None:
        super().__init__(clock=clock, is_deferred=is_deferred)
        self.total_bytes = total_bytes
        self.graph_bytes = 1 << 16
        self.pageable_copies = 0
        self.library_bytes: Counter[int] = Counter()
        self._next_address = 0x7_0000_0000_0000
        self._device: list[Block] = []
        self._pinned: list[Block] = []
        self._registered: dict[int, int] = {}

    def device_view(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Device memory, for what kernels of the fake do; `uint8[nbytes]`."""
        with self._lock:
            return self._device_slice(address, nbytes, "a kernel", E.cudaErrorIllegalAddress)

    # Device memory

    @api_call(values=1)
    def cudaMalloc(self, size: int) -> tuple[int]:
        self._unsafe()
        if size > self._free_bytes:
            raise Failed(E.cudaErrorMemoryAllocation)
        block = Block(self._next_address, np.full(size, 0xCD, np.uint8), self._current_device)
        self._device.append(block)
        self._next_address += -(-size // 256) * 256 + 256
        return (block.address,)

    @api_call()
    def cudaFree(self, devPtr: int) -> None:
        self._unsafe()
        self._free(self._device, devPtr)

    @api_call(values=2)
    def cudaMemGetInfo(self) -> tuple[int, int]:
        return self._free_bytes, self.total_bytes

    # Host memory

    @api_call(values=1)
    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int]:
        self._unsafe()
        memory = np.full(size + 4096, 0xCD, np.uint8)
        start = -memory.ctypes.data % 4096
        block = Block(memory.ctypes.data + start, memory[start : start + size], self._current_device)
        self._pinned.append(block)
        self._pinned.sort(key=lambda block: block.address)
        return (block.address,)

    @api_call()
    def cudaFreeHost(self, ptr: int) -> None:
        self._unsafe()
        self._free(self._pinned, ptr)

    @api_call()
    def cudaHostRegister(self, ptr: int, size: int, flags: int) -> None:
        self._unsafe()
        if any(ptr < start + length and start < ptr + size for start, length in self._registered.items()):
            raise Failed(E.cudaErrorHostMemoryAlreadyRegistered)
        self._registered[ptr] = size

    @api_call()
    def cudaHostUnregister(self, ptr: int) -> None:
        self._unsafe()
        if self._registered.pop(ptr, None) is None:
            raise Failed(E.cudaErrorHostMemoryNotRegistered)

    # What work may use

    def _require_host(self, address: int, count: int) -> None:
        if self._block(self._device, address) is not None:
            self._violation(f"a device address {address:#x} was given as a host address")
        block = self._block(self._pinned, address)
        if block is None:
            is_registered = any(
                start <= address and address + count <= start + size for start, size in self._registered.items()
            )
            self.pageable_copies += not is_registered
            return
        if block.is_freed:
            self._violation(f"pinned memory at {address:#x} is used after it was freed")
        if address + count > block.end:
            self._violation(f"a copy of {count} bytes leaves the pinned memory at {address:#x}")

    def _host_slice(self, address: int, count: int) -> NDArray[np.uint8]:
        block = self._block(self._pinned, address)
        if block is not None and block.is_freed:
            self._violation(f"pinned memory at {address:#x} is used after it was freed", E.cudaErrorIllegalAddress)
        return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)

    def _late_slice(self, address: int, count: int) -> NDArray[np.uint8]:
        """Device memory when the work runs: if it is gone by then, the device faults."""
        return self._device_slice(address, count, "work on a stream", E.cudaErrorIllegalAddress)

    def _device_slice(self, address: int, count: int, who: str, code: cudaError_t) -> NDArray[np.uint8]:
        block = self._block(self._device, address)
        if block is None:
            raise Failed(code)
        if block.is_freed:
            self._violation(f"device memory at {address:#x} is used by {who} after it was freed", code)
        start = address - block.address
        if start + count > block.data.nbytes:
            self._violation(f"{who} of {count} bytes leaves the device memory at {address:#x}", code)
        return block.data[start : start + count]

    # Blocks

    def _block(self, blocks: list[Block], address: int) -> Block | None:
        index = bisect_right(blocks, address, key=lambda block: block.address) - 1
        if index < 0 or address >= blocks[index].end:
            return None
        return blocks[index]

    def _free(self, blocks: list[Block], address: int) -> None:
        block = self._block(blocks, address)
        if block is None or block.address != address:
            raise Failed(E.cudaErrorInvalidValue)
        if block.is_freed:
            self._violation(f"the memory at {address:#x} was freed twice")
        for stream in self._streams():
            self._drain(stream)
        block.is_freed = True
        block.data.fill(0xDD)

    @property
    def _free_bytes(self) -> int:
        device = self._current_device
        buffers = sum(block.data.nbytes for block in self._device if block.device == device and not block.is_freed)
        graphs = sum(isinstance(value, Exec) and value.device == device for value in self._handles.values())
        return self.total_bytes - buffers - graphs * self.graph_bytes - self.library_bytes[device]

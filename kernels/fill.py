"""Launches `fill`: device memory gets the same 1, 2 or 4 bytes over and over, whatever its alignment."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from kernels.launch import KernelArgument
from kernels.specs import Geometry, ceil_div
from service.errors import DeviceError

ENTRY = "fill_bytes"
BLOCK = (256, 1, 1)
STORE_BYTES = 16

MAX_BLOCKS = 1024
"""More than a device of today runs at once: what is left, every thread stores in further rounds."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Device memory and the pattern to write into it; made by `of`.

    Attributes:
        device_address: of the first byte.
        nbytes: how many there are, 0 too.
        word: the pattern as it lies at multiples of 4, as a little-endian UINT32.
    """

    device_address: int
    nbytes: int
    word: int

    @classmethod
    def of(cls, device_address: int, value: int, itemsize: int, count: int) -> Fill:
        """A fill of `count` items.

        Args:
            device_address: of the first item, a multiple of `itemsize`.
            value: what every item becomes; bits beyond it are left out, as CUDA's own fills do.
            itemsize: 1, 2 or 4 bytes.
            count: how many items.

        Raises:
            DeviceError: the items are of another size, or do not begin where such items may.
        """
        if itemsize not in (1, 2, 4) or device_address % itemsize:
            raise DeviceError(
                f"a fill of items of {itemsize} bytes at {device_address:#x}; the kernel takes items of 1, 2 or 4 "
                "bytes that begin at a multiple of their size"
            )
        item = (value & (1 << 8 * itemsize) - 1).to_bytes(itemsize, "little")
        return cls(device_address, count * itemsize, int.from_bytes(item * (4 // itemsize), "little"))

    @property
    def geometry(self) -> Geometry:
        """A thread for every store, up to `MAX_BLOCKS`; one block at least, for the bytes beside them."""
        blocks = ceil_div(self.nbytes, STORE_BYTES * BLOCK[0])
        return Geometry((min(max(blocks, 1), MAX_BLOCKS), 1, 1), BLOCK)

    @property
    def arguments(self) -> list[KernelArgument]:
        """As the kernel declares them."""
        return [ctypes.c_void_p(self.device_address), ctypes.c_uint64(self.nbytes), ctypes.c_int(self.word)]

"""Memory that the processes of one server share, and that vanishes with the last of them, however they end.

It has no name: a descriptor is handed down to the processes that the server starts, so nothing is left behind, and
nobody else can open it. Where the system has no anonymous files it is a file that is unlinked at once.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np
from numpy.typing import NDArray

from service.errors import SettingsInvalid
from service.transport.arena import LEAST_SLOT_BYTES


class SharedMemory:
    """Memory of all processes of the server, mapped into this one; made by `create` and `attach`.

    Args:
        fd: descriptor of the memory; closed by `close`.
        nbytes: its size.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._mapping: mmap.mmap | None = mmap.mmap(fd, nbytes)

    @classmethod
    def create(cls, nbytes: int) -> SharedMemory:
        """New memory, all zero; the system gives pages as they are written to.

        Raises:
            SettingsInvalid: the system does not give so much.
        """
        fd = _anonymous_file()
        try:
            os.ftruncate(fd, nbytes)
            return cls(fd, nbytes)
        except (OSError, ValueError, OverflowError) as error:
            os.close(fd)
            raise SettingsInvalid(
                f"INFERLANE_ARENA_BYTES is {nbytes}, and the system does not give so much shared memory ({error}); "
                "lower it, or give the process more"
            ) from None

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> SharedMemory:
        """Memory that another process made, of which this one was given the descriptor.

        Raises:
            OSError, ValueError: it is not that.
        """
        return cls(fd, nbytes)

    def region(self, index: int, count: int) -> NDArray[np.uint8]:
        """The part of one front end.

        Args:
            index: which one, from 0.
            count: how many there are, all of the same size.

        Returns:
            host_region: uint8 [region_bytes], writable; it keeps the memory mapped for as long as it lives.
        """
        if self._mapping is None:
            raise ValueError("the shared memory is closed")
        nbytes = region_bytes(self.nbytes, count)
        return np.frombuffer(self._mapping, np.uint8, nbytes, index * nbytes)

    def close(self) -> None:
        """Gives up the descriptor; the mapping goes with the last view of it. Idempotent."""
        if self._mapping is not None:
            self._mapping = None
            os.close(self.fd)


def region_bytes(nbytes: int, count: int) -> int:
    """Size of each of `count` regions, a whole number of the least slots."""
    return nbytes // count // LEAST_SLOT_BYTES * LEAST_SLOT_BYTES


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("inferlane-arena", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="inferlane-arena-")
    os.unlink(path)
    return fd

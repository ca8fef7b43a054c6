"""A front end's region of the shared memory: where its requests' bodies, tensors and results lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.api.body import BodyBuffer, OwnMemory
from service.errors import Overloaded
from service.tensors import HostArray
from service.transport.arena import LEAST_SLOT_BYTES, Arena, ArenaFull, LeasedSlot

RETRY_AFTER_S = 1.0

MAX_BODIES_SHARE = 0.5
"""Of a region, for bodies: a client that sends next to nothing holds the room of a large one until it times out."""


class RegionBuffer(NamedTuple):
    """Memory for a body; see `service.api.body.BodyBuffer`.

    Attributes:
        host_buffer: uint8 [nbytes], writable.
        lease: what `release` gives up.
        give_back: gives it up.
    """

    host_buffer: NDArray[np.uint8]
    lease: LeasedSlot
    give_back: Callable[[LeasedSlot], None]

    def release(self) -> None:
        """The body needs it no more; a request whose tensors lie in it may still."""
        self.give_back(self.lease)


class Region:
    """Divides a region; a `Room` for requests and a `BodyMemory` for bodies. Belongs to the front end's event loop.

    Args:
        host_region: uint8, one dimension; page-aligned memory that the engine sees too.
    """

    def __init__(self, host_region: NDArray[np.uint8]) -> None:
        self._host_region = host_region
        self._address = host_region.ctypes.data
        self._arena = Arena(len(host_region))
        self._leases: dict[int, LeasedSlot] = {}
        self._own_memory = OwnMemory()
        self._max_bodies_bytes = int(self._arena.nbytes * MAX_BODIES_SHARE)
        self._bodies_bytes = 0

    @property
    def host_region(self) -> memoryview:
        """The whole region: uint8, one dimension."""
        return self._host_region.data

    @property
    def held_bytes(self) -> int:
        """Bytes that are in use."""
        return self._arena.held_bytes

    def take(self, nbytes: int) -> LeasedSlot:
        """A part of the region, held by the caller.

        Raises:
            Overloaded: there is no room now.
        """
        try:
            return LeasedSlot(self._arena, nbytes)
        except ArenaFull as full:
            raise Overloaded(
                f"this front end's requests hold {full.held_bytes} of its {full.arena_bytes} bytes of shared memory, "
                f"and {nbytes} more are needed in one piece; retry later, send less at once, or raise "
                "INFERLANE_ARENA_BYTES",
                retry_after_s=RETRY_AFTER_S,
            ) from None

    def take_buffer(self, nbytes: int) -> BodyBuffer:
        """Memory of a body, in which the tensors that it brings are later found.

        Bodies beyond `MAX_BODIES_SHARE` get memory of this process, and their tensors are copied when all has arrived:
        clients that announce large bodies and send them slowly, or never, leave room for everybody else's requests.

        Raises:
            Overloaded: there is no room now.
        """
        lease = self.take(nbytes)
        if self._bodies_bytes + lease.slot.nbytes > self._max_bodies_bytes:
            lease.release()
            return self._own_memory.take_buffer(nbytes)
        self._bodies_bytes += lease.slot.nbytes
        # The entry of a slot that was given back is overwritten by its next holder, and found by nobody before.
        self._leases[lease.offset] = lease
        return RegionBuffer(self._host_region[lease.offset : lease.offset + nbytes], lease, self._give_back)

    def find(self, host_array: HostArray) -> tuple[LeasedSlot, int] | None:
        """The part in which an array lies, and the array's offset from the beginning of the region.

        None where it lies elsewhere.
        """
        offset = host_array.ctypes.data - self._address
        if not 0 <= offset < self._arena.nbytes:
            return None
        slot_bytes = LEAST_SLOT_BYTES
        while slot_bytes <= self._arena.nbytes:
            lease = self._leases.get(offset & -slot_bytes)
            if lease is not None and lease.slot.nbytes == slot_bytes and lease.is_held:
                return lease, offset
            slot_bytes <<= 1
        return None

    def _give_back(self, lease: LeasedSlot) -> None:
        self._bodies_bytes -= lease.slot.nbytes
        lease.release()

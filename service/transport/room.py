"""What a front end asks of its region of the shared memory: the seam to whoever divides it."""

from __future__ import annotations

from typing import Protocol

from service.tensors import HostArray


class Lease(Protocol):
    """A part of the region that is in use until everybody who holds it has let it go."""

    @property
    def offset(self) -> int:
        """Where it begins, in bytes from the beginning of the region; aligned to `HOST_ALIGNMENT_BYTES`."""

    def retain(self) -> None:
        """One more holds it."""

    def release(self) -> None:
        """One fewer holds it; the last gives it back."""


class Room(Protocol):
    """A front end's region. On the event loop."""

    @property
    def host_region(self) -> memoryview:
        """The whole region: uint8, one dimension."""

    def take(self, nbytes: int) -> Lease:
        """A part of the region, held by the caller.

        Raises:
            Overloaded: there is no room now.
        """

    def find(self, host_array: HostArray) -> tuple[Lease, int] | None:
        """The part in which an array lies, and the array's offset from the beginning of the region.

        None where it lies elsewhere.
        """

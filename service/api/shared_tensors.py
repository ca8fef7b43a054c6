"""Tensors in clients' shared memory: copied out before they are checked, and outputs copied in before the answer.

Memory that somebody else can write is never computed on, nor checked where it lies: what runs is the copy that was
found valid. Copying goes in steps, between which the event loop turns to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.api.body import BodyBuffer, BodyMemory, ByteBudget
from service.api.oip_codec import BegunInfer
from service.api.oip_places import Place
from service.api.oip_render import SharedPart
from service.errors import PayloadTooLarge
from service.shared_regions.region import SharedRegion
from service.shared_regions.registered import Regions
from service.tensors import HOST_ALIGNMENT_BYTES, IN_PLACE_FROM_BYTES, aligned

STEP_BYTES = 1 << 20
"""What is copied before the event loop turns to others; about a tenth of a millisecond."""


class _Input(NamedTuple):
    region: SharedRegion
    place: Place


class SharedTensors:
    """What all requests of a process copy by. On the event loop.

    Args:
        regions: where theirs are looked up.
        budget: bytes that all requests together may hold.
        memory: where large tensors are copied to.
        limit_bytes: most bytes of one request, its body and what it names.
    """

    def __init__(self, regions: Regions, *, budget: ByteBudget, memory: BodyMemory, limit_bytes: int) -> None:
        self._regions = regions
        self._budget = budget
        self._memory = memory
        self._limit_bytes = limit_bytes

    def visit(self, begun: BegunInfer) -> SharedVisit:
        """Looks up the regions of a request, which keeps them until the visit is closed, and holds room for its inputs.

        Raises:
            InvalidInput: a region is not registered, or a place is not inside it.
            PayloadTooLarge: the inputs are larger than a body may be.
            Overloaded: there is no room for them now.
        """
        visit = SharedVisit(self._budget)
        try:
            for header in begun.inputs:
                if header.place is not None:
                    what = f"input '{header.tensor.name}'"
                    visit.inputs.append(_Input(self._look_up(visit, header.place, what), header.place))
            for output in begun.outputs:
                if output.place is not None:
                    self._look_up(visit, output.place, "an output")
            self._hold_room(visit, len(begun.body))
        except BaseException:
            visit.close()
            raise
        return visit

    def _look_up(self, visit: SharedVisit, place: Place, what: str) -> SharedRegion:
        region = visit.regions.get(place.region)
        if region is None:
            region = self._regions.get(place.region)
            region.retain()
            visit.regions[place.region] = region
        region.check(place.offset, place.nbytes, what)
        return region

    def _hold_room(self, visit: SharedVisit, body_bytes: int) -> None:
        nbytes = sum(place.nbytes for _, place in visit.inputs)
        if body_bytes + nbytes > self._limit_bytes:
            raise PayloadTooLarge(
                f"the request has {body_bytes} bytes and names {nbytes} more in shared memory, max_body_bytes is "
                f"{self._limit_bytes}; send fewer rows at once"
            )
        self._budget.take(nbytes)
        visit.held_bytes = nbytes
        room_bytes = sum(aligned(place.nbytes) for _, place in visit.inputs)
        if room_bytes >= IN_PLACE_FROM_BYTES:
            visit.buffer = self._memory.take_buffer(room_bytes + HOST_ALIGNMENT_BYTES)


class SharedVisit:
    """One request's use of its regions; made by `SharedTensors.visit`. On the event loop.

    Attributes:
        regions: by name; held.
        inputs: those that lie in them, in the order of the request.
        held_bytes: of the budget.
        buffer: where large inputs are copied to; it outlives the visit where a request still reads there.
    """

    __slots__ = ("_budget", "buffer", "held_bytes", "inputs", "regions")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.regions: dict[str, SharedRegion] = {}
        self.inputs: list[_Input] = []
        self.held_bytes = 0
        self.buffer: BodyBuffer | None = None

    async def read(self) -> list[memoryview]:
        """A copy of each input, read-only, and aligned as models want it.

        Raises:
            InvalidInput: an object has shrunk.
        """
        host_room = self._host_room()
        parts, start = [], 0
        for region, place in self.inputs:
            host_part = host_room[start : start + place.nbytes]
            for begin, end in _steps(place.nbytes):
                region.read_into(host_part[begin:end], place.offset + begin)
                if end - begin == STEP_BYTES:
                    await asyncio.sleep(0)
            parts.append(host_part.toreadonly())
            start += aligned(place.nbytes)
        return parts

    async def write(self, shared: Sequence[SharedPart]) -> None:
        """Copies outputs to their places.

        Raises:
            InvalidInput: an object has shrunk.
            Overloaded: the system has no memory left for it.
        """
        for place, data in shared:
            region, view = self.regions[place.region], memoryview(data)
            for begin, end in _steps(len(view)):
                region.write(view[begin:end], place.offset + begin)
                if end - begin == STEP_BYTES:
                    await asyncio.sleep(0)

    def close(self) -> None:
        """Lets go of regions, room and memory."""
        for region in self.regions.values():
            region.release()
        self.regions = {}
        self._budget.give_back(self.held_bytes)
        self.held_bytes = 0
        if self.buffer is not None:
            self.buffer.release()
            self.buffer = None

    def _host_room(self) -> memoryview:
        if self.buffer is None:
            return memoryview(bytearray(sum(aligned(place.nbytes) for _, place in self.inputs)))
        host_buffer = self.buffer.host_buffer
        start = -host_buffer.ctypes.data % HOST_ALIGNMENT_BYTES
        return host_buffer.data[start:]


def _steps(nbytes: int) -> Iterator[tuple[int, int]]:
    """Where each step of copying begins and ends."""
    for begin in range(0, nbytes, STEP_BYTES):
        yield begin, min(begin + STEP_BYTES, nbytes)

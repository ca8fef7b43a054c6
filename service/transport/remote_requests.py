"""A front end's requests that the engine has: each is answered exactly once, and holds its memory until then.

Whatever becomes of a request or its client, only the engine's answer frees what the request holds of the region, for
until then a lane may read or write there. When the engine is gone its requests are answered at once; what they hold is
freed when an engine welcomes this front end, for only then is it known that nothing of the old one runs any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from service.batching.pending import Submitted, answer, fail
from service.errors import NotReady, PayloadTooLarge
from service.models import ModelSpec
from service.requests import InferenceRequest
from service.tensors import HostArray
from service.transport.channel import Channel
from service.transport.descriptors import (
    INLINE,
    Done,
    Placed,
    Submit,
    pack_cancel,
    pack_submit,
    unpack_done,
    unpack_failed,
)
from service.transport.placing import Tensors, output_specs, take_up
from service.transport.room import Lease, Room
from service.transport.wire import Malformed

ENGINE_AWAY = "the engine process is not there; it is being started, retry shortly"
RETRY_AFTER_S = 1.0


def engine_away() -> NotReady:
    """What is said while there is no engine."""
    return NotReady(ENGINE_AWAY, retry_after_s=RETRY_AFTER_S)


class Origin(Protocol):
    """The model that a request is of."""

    @property
    def spec(self) -> ModelSpec:
        """Its tensors."""

    def told(self, done: Done) -> None:
        """One of its requests was answered."""


class RemoteRequest(Submitted):
    """A request that the engine has.

    Attributes:
        number: on its channel.
        origin: its model.
        leases: what it holds of the region.
    """

    __slots__ = ("leases", "number", "origin")

    def __init__(
        self,
        request: InferenceRequest,
        future: asyncio.Future[tuple[HostArray, ...]],
        *,
        number: int,
        origin: Origin,
        leases: Sequence[Lease],
    ) -> None:
        super().__init__(request, future)
        self.number = number
        self.origin = origin
        self.leases = leases


class RemoteRequests:
    """The requests of one front end. On the event loop.

    Args:
        room: the front end's region.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self._channel: Channel | None = None
        self._number = 0
        self._requests: dict[int, RemoteRequest] = {}
        self._orphans: list[Lease] = []

    def __len__(self) -> int:
        return len(self._requests)

    def attach(self, channel: Channel) -> None:
        """Requests go there from now on: an engine is there, and nothing of an earlier one runs any more."""
        self._channel = channel
        orphans, self._orphans = self._orphans, []
        _release(orphans)

    def lose(self) -> None:
        """The engine is gone: answers all requests, and takes none until the next `attach`."""
        self._channel = None
        requests, self._requests = self._requests, {}
        for item in requests.values():
            self._orphans += item.leases
            fail(item, engine_away())

    def check(self) -> None:
        """Refuses a request before anything is done for it.

        Raises:
            NotReady: there is no engine.
        """
        if self._channel is None:
            raise engine_away()

    def send(
        self, submit: Submit, tensors: Tensors, request: InferenceRequest, origin: Origin, leases: Sequence[Lease]
    ) -> RemoteRequest:
        """Sends a request whose tensors are placed; its leases are released with its answer.

        Args:
            submit: what is said of it; its number is given here.
            tensors: where its inputs lie.
            request: the request.
            origin: its model.
            leases: what it holds of the region; this takes them over.

        Raises:
            NotReady: there is no engine.
            PayloadTooLarge: what travels inline is more than a message takes.
        """
        channel = self._channel
        if channel is None:
            _release(leases)
            raise engine_away()
        self._number += 1
        try:
            frame = pack_submit(submit._replace(number=self._number), tensors.inline)
        except ValueError as error:
            _release(leases)
            raise PayloadTooLarge(f"the request's BYTES tensors are too large for a front end: {error}") from None
        channel.send(frame)
        future: asyncio.Future[tuple[HostArray, ...]] = asyncio.get_running_loop().create_future()
        item = RemoteRequest(request, future, number=self._number, origin=origin, leases=leases)
        self._requests[self._number] = item
        return item

    def cancel(self, item: Submitted) -> bool:
        """Asks the engine to drop a request; its answer says whether it could."""
        if self._channel is None or not isinstance(item, RemoteRequest) or item.number not in self._requests:
            return False
        self._channel.send(pack_cancel(item.number))
        return True

    def done(self, payload: memoryview, now_ns: int) -> None:
        """Answers a request with its outputs.

        Raises:
            Malformed: the answer makes no sense, or there is no such request.
        """
        done, inline = unpack_done(payload)
        item = self._pop(done.number)
        try:
            outputs = self._outputs(item, done.outputs, inline)
        except Exception:  # or it would be answered by nobody
            fail(item, engine_away())
            raise
        finally:
            _release(item.leases)
        stamps = item.request.stamps
        (
            stamps.formed,
            stamps.dispatched,
            stamps.started,
            stamps.uploaded,
            stamps.copied_in,
            stamps.computed,
            stamps.copied_out,
        ) = done.moments
        stamps.completed = now_ns
        item.origin.told(done)
        answer(item, outputs)

    def failed(self, payload: memoryview) -> None:
        """Answers a request with its error.

        Raises:
            Malformed: as `done`.
        """
        number, error = unpack_failed(payload)
        item = self._pop(number)
        _release(item.leases)
        fail(item, error)

    def _pop(self, number: int) -> RemoteRequest:
        item = self._requests.pop(number, None)
        if item is None:
            raise Malformed(f"an answer to request {number}, which is not there; {len(self._requests)} are")
        return item

    def _outputs(self, item: RemoteRequest, placed: Sequence[Placed], inline: memoryview) -> tuple[HostArray, ...]:
        tensors = output_specs(item.origin.spec, item.request.form)
        arrays = take_up(placed, inline, [tensors[index] for index in item.request.outputs], self.room.host_region)
        # The answer is written to its client long after the region's part of it is given to another request.
        return tuple(
            array if where.offset == INLINE else array.copy() for where, array in zip(placed, arrays, strict=True)
        )


def _release(leases: Sequence[Lease]) -> None:
    for lease in leases:
        lease.release()

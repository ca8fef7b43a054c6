"""A request in a queue: what whoever submitted it waits for, and all that the policy may ask of it."""

from __future__ import annotations

import asyncio
from enum import Enum

from service.buckets import Home
from service.errors import ServiceError
from service.requests import InferenceRequest
from service.tensors import HostArray


class PendingState(Enum):
    """Where a submitted request is; each is answered exactly once, on the way to DONE."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    DONE = "done"


class Submitted:
    """A submitted request and the future of its answer, wherever it runs. Owned by the event loop.

    Attributes:
        request: the validated request.
        future: resolves to the request's outputs, or to the error that ended it.
        state: where it is.
    """

    __slots__ = ("future", "request", "state")

    def __init__(self, request: InferenceRequest, future: asyncio.Future[tuple[HostArray, ...]]) -> None:
        self.request = request
        self.future = future
        self.state = PendingState.QUEUED


class Pending(Submitted):
    """A submitted request in the queue of this process. Owned by the event loop.

    Attributes:
        order: ascending urgency: priority, then deadline, then age.
        home: its form, and its dims padded to its own bucket; some batch size that holds its rows is served there.
        rows: rows it adds to a batch.
        work_ns: what those rows cost in their own best bucket.
        queued_ns: when it entered the queue.
        kept_open_ns: how long batches had been kept open by then, in all.
        deadline_ns: when it must have been dispatched.
    """

    __slots__ = ("deadline_ns", "home", "kept_open_ns", "order", "queued_ns", "rows", "work_ns")

    def __init__(
        self,
        request: InferenceRequest,
        *,
        sequence: int,
        home: Home,
        work_ns: float,
        queued_ns: int,
        future: asyncio.Future[tuple[HostArray, ...]],
    ) -> None:
        super().__init__(request, future)
        self.order = (request.priority, request.deadline_ns, sequence)
        self.home = home
        self.rows = request.rows
        self.work_ns = work_ns
        self.queued_ns = queued_ns
        self.kept_open_ns = 0
        self.deadline_ns = request.deadline_ns


def answer(item: Submitted, outputs: tuple[HostArray, ...]) -> None:
    """Gives a request its outputs, unless it was answered or given up."""
    item.state = PendingState.DONE
    if not item.future.done():
        item.future.set_result(outputs)


def fail(item: Submitted, error: ServiceError) -> None:
    """Ends a request with an error, unless it was answered or given up."""
    item.state = PendingState.DONE
    if not item.future.done():
        item.future.set_exception(error)

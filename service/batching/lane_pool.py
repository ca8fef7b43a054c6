"""The lanes of one model, each with the one thread that owns it for life."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeGuard, TypeVar

from service.batching.guests import Guests
from service.device_figures import LaneFigures
from service.errors import DeviceError, ExecutionFailed, ServiceError
from service.requests import Batch, BatchResult
from service.runtime.protocol import Backend, Lane, Ticket

T = TypeVar("T")
Outcome: TypeAlias = BatchResult | ServiceError
OnDone: TypeAlias = Callable[[int, Batch, Outcome], None]
"""Called on the lane's thread with the lane's number, the batch and its result or error; must not block."""

_Job: TypeAlias = Batch | Callable[[Lane], None] | None
_log = logging.getLogger(__name__)


class LaneThread:
    """One lane and its thread. Batches run in the order they are given, at most `depth` of them open."""

    def __init__(self, backend: Backend, lane_id: int, on_done: OnDone) -> None:
        self._backend = backend
        self._lane_id = lane_id
        self._on_done = on_done
        self._inbox: SimpleQueue[_Job] = SimpleQueue()
        self._open: deque[tuple[Batch, Ticket]] = deque()
        self._lane: Lane | None = None
        self._thread: threading.Thread | None = None
        self._loss: DeviceError | None = None

    def start(self) -> None:
        """Starts the thread and makes the lane on it.

        Raises:
            ServiceError: the backend could not make the lane; the thread has ended.
        """
        made: Future[None] = Future()
        name = f"lane-{self._backend.spec.name}-{self._lane_id}"
        self._thread = threading.Thread(target=self._run, args=(made,), name=name, daemon=True)
        self._thread.start()
        made.result()

    def begin_call(self, function: Callable[[Lane], T]) -> Future[T]:
        """Lets the lane's thread run `function(lane)` after the batches given before; does not wait for its result."""
        done: Future[T] = Future()

        def job(lane: Lane) -> None:
            try:
                done.set_result(function(lane))
            except BaseException as error:
                done.set_exception(error)

        self._inbox.put(job)
        return done

    def call(self, function: Callable[[Lane], T]) -> T:
        """Runs `function(lane)` on the lane's thread, after the batches given before, and returns its result.

        Blocks the calling thread, which must not be the event loop's.
        """
        return self.begin_call(function).result()

    def dispatch(self, batch: Batch) -> None:
        """Hands a batch to the lane; its outcome arrives through `on_done`. Never blocks."""
        assert self._thread is not None, "a lane that is not started, or closed, would never answer"
        self._inbox.put(batch)

    def figures(self) -> LaneFigures:
        """What the lane tells of its device; may be called on any thread, also before `start` and after `close`."""
        return LaneFigures() if self._lane is None else self._lane.figures()

    def close(self) -> None:
        """Ends the thread after the batches given before, and closes the lane; idempotent. Blocks until then.

        Raises:
            DeviceError: the device turned out to be lost; told once.
        """
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None
        loss, self._loss = self._loss, None
        if loss is not None:
            raise loss

    def _run(self, made: Future[None]) -> None:
        try:
            lane = self._backend.create_lane(self._lane_id)
        except BaseException as error:
            made.set_exception(error)
            return
        self._lane = lane
        made.set_result(None)
        try:
            self._serve(lane)
        finally:
            self._close_lane(lane)

    def _close_lane(self, lane: Lane) -> None:
        try:
            lane.close()
        except DeviceError as error:
            self._loss = error

    def _serve(self, lane: Lane) -> None:
        depth = self._backend.lane_depth
        while True:
            try:
                job = self._inbox.get(block=not self._open)
            except Empty:
                self._finish_oldest(lane)
                continue
            if isinstance(job, Batch):
                self._begin(lane, job)
                if len(self._open) >= depth:
                    self._finish_oldest(lane)
                continue
            while self._open:
                self._finish_oldest(lane)
            if job is None:
                return
            job(lane)

    def _begin(self, lane: Lane, batch: Batch) -> None:
        try:
            self._open.append((batch, lane.enqueue(batch)))
        except Exception as error:
            self._on_done(self._lane_id, batch, _as_service_error(error))

    def _finish_oldest(self, lane: Lane) -> None:
        batch, ticket = self._open.popleft()
        outcome: Outcome
        try:
            outcome = lane.sync(ticket)
        except Exception as error:
            outcome = _as_service_error(error)
        self._on_done(self._lane_id, batch, outcome)


def _as_service_error(error: Exception) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    _log.error("a lane raised an unexpected error", exc_info=error)
    return ExecutionFailed("the model could not run this batch; the server's log has the cause")


class LanePool:
    """All lanes of one model. Grown, shrunk and closed on a worker thread; `dispatch` is called by the event loop.

    Attributes:
        guests: who uses the backend beside the lanes; `close` waits for them.
    """

    def __init__(self, backend: Backend, on_done: OnDone) -> None:
        self.guests = Guests()
        self._backend = backend
        self._on_done = on_done
        self._lanes: list[LaneThread] = []

    def __len__(self) -> int:
        return len(self._lanes)

    def grow(self, count: int) -> None:
        """Starts lanes, one after another, until there are `count`. Not once batches are dispatched.

        Raises:
            ServiceError: the backend could not make one; those before it stay.
        """
        while len(self._lanes) < count:
            lane = LaneThread(self._backend, len(self._lanes), self._on_done)
            lane.start()
            self._lanes.append(lane)

    def shrink(self, count: int) -> None:
        """Closes the last lanes until there are `count`. Not once batches are dispatched.

        Raises:
            DeviceError: the device turned out to be lost.
        """
        while len(self._lanes) > count:
            self._lanes.pop().close()

    def call(self, lane_id: int, function: Callable[[Lane], T]) -> T:
        """Runs `function` on a lane's own thread and returns its result; blocks, so never on the event loop."""
        return self._lanes[lane_id].call(function)

    def call_together(self, function: Callable[[Lane], T], *, count: int | None = None) -> tuple[T, ...]:
        """Runs `function` on the own threads of the first `count` lanes, by default of all, at once.

        Returns or raises when all are done.
        """
        calls = [lane.begin_call(function) for lane in self._lanes[:count]]
        wait(calls)
        return tuple(call.result() for call in calls)

    def figures(self) -> tuple[LaneFigures, ...]:
        """What each lane tells of its device; may be called on any thread, also after `close`."""
        return tuple(lane.figures() for lane in self._lanes)

    @property
    def backend(self) -> Backend:
        """What makes the lanes; whoever uses it beside them stays with `guests`."""
        return self._backend

    @property
    def weights_bytes(self) -> int:
        """Device memory of what the lanes share."""
        return self._backend.weights_bytes

    def dispatch(self, lane_id: int, batch: Batch) -> None:
        """Hands a batch to a lane."""
        self._lanes[lane_id].dispatch(batch)

    def close(self) -> None:
        """Closes every lane, then the backend; idempotent. Blocks until running batches are done.

        Raises:
            DeviceError: the device turned out to be lost; the rest is not closed, for that may hang.
        """
        self.guests.wait_until_gone()
        for lane in self._lanes:
            lane.close()
        self._backend.close()


def is_lost(outcome: object) -> TypeGuard[DeviceError]:
    """Whether an outcome, or an error, says that the device is lost to this process."""
    return isinstance(outcome, DeviceError) and outcome.is_sticky

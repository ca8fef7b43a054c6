"""The lanes of one model, each with the one thread that owns it for life."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

from service.device_figures import LaneFigures
from service.errors import ExecutionFailed, ServiceError
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

    def call(self, function: Callable[[Lane], T]) -> T:
        """Runs `function(lane)` on the lane's thread, after the batches given before, and returns its result.

        Blocks the calling thread, which must not be the event loop's.
        """
        done: Future[T] = Future()

        def job(lane: Lane) -> None:
            try:
                done.set_result(function(lane))
            except BaseException as error:
                done.set_exception(error)

        self._inbox.put(job)
        return done.result()

    def dispatch(self, batch: Batch) -> None:
        """Hands a batch to the lane; its outcome arrives through `on_done`. Never blocks."""
        assert self._thread is not None, "a lane that is not started, or closed, would never answer"
        self._inbox.put(batch)

    def figures(self) -> LaneFigures:
        """What the lane tells of its device; may be called on any thread, also before `start` and after `close`."""
        return LaneFigures() if self._lane is None else self._lane.figures()

    def close(self) -> None:
        """Ends the thread after the batches given before, and closes the lane; idempotent. Blocks until then."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

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
            lane.close()

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
    """All lanes of one model. Opened and closed on a worker thread; `dispatch` is called by the event loop."""

    def __init__(self, backend: Backend, on_done: OnDone) -> None:
        self._backend = backend
        self._lanes = tuple(LaneThread(backend, lane_id, on_done) for lane_id in range(backend.lane_count))

    def __len__(self) -> int:
        return len(self._lanes)

    def start(self) -> None:
        """Starts every lane; if one fails, closes them all and raises its error."""
        try:
            for lane in self._lanes:
                lane.start()
        except BaseException:
            self.close()
            raise

    def call_each(self, function: Callable[[Lane], T]) -> tuple[T, ...]:
        """Runs `function` on every lane's own thread, one lane after another, and returns the results."""
        return tuple(lane.call(function) for lane in self._lanes)

    def figures(self) -> tuple[LaneFigures, ...]:
        """What each lane tells of its device; may be called on any thread, also after `close`."""
        return tuple(lane.figures() for lane in self._lanes)

    @property
    def weights_bytes(self) -> int:
        """Device memory of what the lanes share."""
        return self._backend.weights_bytes

    def dispatch(self, lane_id: int, batch: Batch) -> None:
        """Hands a batch to a lane."""
        self._lanes[lane_id].dispatch(batch)

    def close(self) -> None:
        """Closes every lane, then the backend; idempotent. Blocks until running batches are done."""
        for lane in self._lanes:
            lane.close()
        self._backend.close()

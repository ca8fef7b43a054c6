"""The loop that applies the policy: admits requests, dispatches batches, resolves answers.

Everything here runs on the event loop, except `_on_done`, which a lane's thread calls and which only wakes the
loop. A decision and its effects (requests out of the queue, lane taken) happen in one synchronous step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from service.batching.alarm import Alarm
from service.batching.lane_load import LaneLoad
from service.batching.lane_pool import LanePool, Outcome, is_lost
from service.batching.pause import Pause
from service.batching.pending import Pending, Submitted, answer, fail
from service.batching.policy import Dispatch, Rules, WaitUntil, next_action, own_bucket
from service.batching.queue import NO_DEADLINE_NS, RequestQueue
from service.batching.queue_watch import QueueWatch, stamp_lane_times
from service.batching.refusals import expired, too_late, unserved_shape
from service.batching.workload import Workload
from service.buckets import Bucket, CostTable, Unserved
from service.errors import ClientGone, DeviceError, NotReady, ServiceError, ShuttingDown
from service.requests import Batch, BatchResult, Clock, InferenceRequest
from service.runtime.protocol import Backend
from service.telemetry.activity import Activity
from service.telemetry.recorder import ModelRecorder
from service.units import NS_PER_S

OnDeviceLost: TypeAlias = Callable[[DeviceError], None]
"""Told of a sticky error: no lane on the device will run anything any more, and closing one may hang."""


class Batcher:
    """Queue, policy and lanes of one model version.

    Args:
        backend: the opened model; closed together with the batcher.
        on_device_lost: told, on the event loop, of an error after which the device is lost to this process.
        clock: monotonic nanoseconds, comparable with the event loop's own time.
    """

    def __init__(self, backend: Backend, *, on_device_lost: OnDeviceLost, clock: Clock = time.monotonic_ns) -> None:
        self._spec = backend.spec
        self._on_device_lost = on_device_lost
        self._recorder: ModelRecorder | None = None
        self._clock = clock
        self._pool = LanePool(backend, self._on_done)
        self._queue = RequestQueue(backend.spec.card.batching, model=backend.spec.name)
        self._watch = QueueWatch(Activity(clock()), is_exact=backend.spec.buckets.is_exact)
        self._lane_depth = backend.lane_depth
        self._load = LaneLoad(0)
        self._sequence = 0
        self._rules: Rules | None = None
        self._unserved: Mapping[Bucket, Unserved] = {}
        self._workload: Workload | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm = Alarm(self._step, clock)
        self._pause = Pause()
        self._refusal: ServiceError | None = NotReady(f"model '{backend.spec.name}' is still loading; retry shortly")
        self._drained: asyncio.Event | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<Batcher {self._spec.name} queued={len(self._queue)} in_flight={self._load.in_flight}>"

    @property
    def pool(self) -> LanePool:
        """The lanes, for warm-up and probes; blocking, so never used on the event loop."""
        return self._pool

    @property
    def activity(self) -> Activity:
        """What a diagnosis wants to know of its requests."""
        return self._watch.activity

    @property
    def queued_requests(self) -> int:
        """Requests that wait for a lane."""
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Input bytes that wait for a lane."""
        return self._queue.nbytes

    @property
    def dispatched_requests(self) -> int:
        """Requests on a lane. Like the other counts, a plain number that any thread may read."""
        return self._load.requests

    @property
    def lane_count(self) -> int:
        """Lanes of this model."""
        return len(self._pool)

    @property
    def lane_depth(self) -> int:
        """Batches that a lane may hold at once."""
        return self._lane_depth

    @property
    def busy_lanes(self) -> int:
        """Lanes that hold at least one batch."""
        return self._load.busy_lanes

    def start(
        self,
        costs: CostTable,
        recorder: ModelRecorder,
        unserved: Mapping[Bucket, Unserved] = MappingProxyType({}),
    ) -> None:
        """Begins to take requests; on the event loop, once the lanes are warm.

        Args:
            costs: duration of a batch per bucket that is served.
            recorder: told of batches.
            unserved: buckets that no batch may use, and why.
        """
        self._load = LaneLoad(len(self._pool))
        self._unserved = unserved
        buckets = self._spec.buckets.without(unserved)
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._alarm.start(self._loop)
        self._rules = Rules(
            buckets=buckets,
            costs=costs,
            max_queue_delay_ns=self._spec.card.batching.max_queue_delay_ns,
            lane_depth=self._lane_depth,
        )
        self._workload = Workload(self._rules)
        self._watch.activity.ready_ns = self._clock()
        self._refusal = None

    def submit(self, request: InferenceRequest) -> Pending:
        """Queues a validated request; its `Pending.future` resolves to one array per requested output.

        The future ends with DeadlineExceeded, ExecutionFailed or ShuttingDown if it cannot.

        Raises:
            Overloaded: a queue limit is reached, or the request could not be dispatched before its deadline.
            NotReady, ShuttingDown: the model takes no requests now, or none of this shape in this form.
        """
        rules, workload, loop = self._rules, self._workload, self._loop
        if self._refusal is not None or rules is None or workload is None or loop is None:
            raise self._refusal or NotReady(f"model '{self._spec.name}' is not started")
        home = rules.buckets.home(request.rows, request.dims, request.form)
        if home is None:
            raise unserved_shape(self._spec, self._unserved, request)
        now_ns = self._clock()
        self._watch.activity.arrivals.add(now_ns, request.rows, request.dims, received_ns=request.stamps.received)
        wait_ns = self._predicted_wait_ns(request.priority, now_ns)
        self._queue.check_room(request.nbytes, retry_after_s=wait_ns / NS_PER_S)
        if now_ns + wait_ns > request.deadline_ns:
            raise too_late(self._spec.name, wait_ns, request.deadline_ns - now_ns)
        self._sequence += 1
        item = Pending(
            request,
            sequence=self._sequence,
            home=home,
            work_ns=workload.work_ns(request.rows, home),
            queued_ns=now_ns,
            future=loop.create_future(),
        )
        self._queue.add(item)
        self._watch.queued(item)
        self._alarm.soon()
        return item

    def backlog_ns(self, priority: int) -> float:
        """How long it would take from now until a lane reached a new request of `priority`, in nanoseconds."""
        return self._predicted_wait_ns(priority, self._clock()) if len(self._load) else 0.0

    def lane_time_ns(self, request: InferenceRequest) -> float:
        """What a request takes of all lanes' time, were they one, in nanoseconds; 0 where its shape is not served."""
        rules, workload = self._rules, self._workload
        home = None if rules is None else rules.buckets.home(request.rows, request.dims, request.form)
        if workload is None or home is None:
            return 0.0
        return workload.work_ns(request.rows, home) / len(self._load)

    def cancel(self, item: Submitted) -> bool:
        """Drops a waiting request whose client has gone; False if it is already on a lane or answered."""
        if not isinstance(item, Pending) or not self._queue.discard(item):
            return False
        self._watch.left((item,), self._clock())
        fail(item, ClientGone("the client closed its connection"))
        self._check_drained()
        return True

    async def pause(self, until_ns: int) -> int:
        """Dispatches nothing until a moment of the clock; returns once no lane runs anything, with the moment.

        Requests wait meanwhile, and are admitted if they can. The moment comes sooner where one that waits already
        would miss its deadline; `resume`, `drain` and `abandon` end the pause at once. Where it ended, or could not
        even begin, before the lanes were empty, 0 is returned.

        Raises:
            NotReady, ShuttingDown: the model takes no requests.
        """
        if self._refusal is not None:
            raise self._refusal
        now_ns = self._clock()
        behind_ns = self._predicted_wait_ns(self._spec.card.batching.priority_levels, now_ns)
        until_ns = min(until_ns, self._queue.earliest_deadline_ns - round(behind_ns))
        self._alarm.by(until_ns)
        await self._pause.begin(until_ns, now_ns=now_ns, is_running=not self._load.is_empty)
        return self._pause.until_ns

    def resume(self) -> None:
        """Ends a pause; idempotent."""
        self._pause.end()
        if len(self._queue):
            self._alarm.soon()

    async def drain(self, timeout_s: float) -> None:
        """Takes no more requests and lets the accepted ones finish; after `timeout_s` those that still wait are ended.

        What is on a lane then is still answered, by `close` waiting for it.
        """
        self._refusal = ShuttingDown(f"model '{self._spec.name}' is being unloaded or replaced; send the request again")
        self._drained = asyncio.Event()
        self._pool.guests.ask_to_leave()
        self.resume()
        self._check_drained()
        try:
            await asyncio.wait_for(self._drained.wait(), timeout_s)
        except asyncio.TimeoutError:
            self._end_waiting(ShuttingDown(f"model '{self._spec.name}' stopped before this request could run"))
        self._is_closing = True
        self._alarm.stop()

    def abandon(self, error: DeviceError) -> None:
        """Ends what waits and what runs, at once, and takes nothing more: the device is lost, a lane may never answer.

        What waits ends with NotReady, what runs with `error`. `close` may hang afterwards.
        """
        self._refusal = NotReady(f"the GPU is lost to this server, which ends now: {error.message}")
        self._is_closing = True
        self._pool.guests.ask_to_leave()
        self._pause.end()
        self._alarm.stop()
        self._end_waiting(self._refusal)
        for item in self._load.items():
            fail(item, error)

    def close(self) -> None:
        """Ends lanes and backend; blocks until running batches are done, so it is called off the event loop.

        Raises:
            DeviceError: the device turned out to be lost.
        """
        self._pool.close()

    def _predicted_wait_ns(self, priority: int, now_ns: int) -> float:
        """When a lane would reach a new request of `priority`: the waiting and running work, spread over the lanes."""
        work_ns = self._queue.work_before_ns(priority) + self._load.remaining_ns(now_ns)
        return work_ns / len(self._load) + self._pause.remaining_ns(now_ns)

    def _step(self) -> None:
        rules = self._rules
        assert rules is not None, "nothing can be queued before start()"
        wake_at_ns = NO_DEADLINE_NS
        now_ns = self._clock()
        self._watch.step_began(now_ns)
        if now_ns >= self._queue.earliest_deadline_ns:
            self._expire(now_ns)
        paused_ns = self._pause.remaining_ns(now_ns)
        if not paused_ns:
            self._pause.end()
        while len(self._queue) and not paused_ns:
            action = next_action(self._queue.groups, self._load.in_flight, now_ns, rules)
            if isinstance(action, WaitUntil):
                wake_at_ns = action.at_ns
                self._watch.kept_open(now_ns)
            if not isinstance(action, Dispatch):
                break
            self._dispatch(action, rules, now_ns)
        if len(self._queue):
            wake_at_ns = self._pause.until_ns if paused_ns else wake_at_ns
            self._alarm.by(min(wake_at_ns, self._queue.earliest_deadline_ns))
        self._watch.activity.batcher_ns += self._clock() - now_ns

    def _dispatch(self, action: Dispatch, rules: Rules, now_ns: int) -> None:
        self._queue.take(action.items)
        self._watch.dispatched(action.items, now_ns)
        self._hand_over(action, rules, now_ns)

    def _hand_over(self, action: Dispatch, rules: Rules, now_ns: int) -> None:
        requests = tuple(item.request for item in action.items)
        batch = Batch(action.bucket, requests, sum(item.rows for item in action.items))
        cost_ns = rules.costs.cost_ns(action.bucket)
        self._load.begin(action.lane_id, batch, action.items, now_ns=now_ns, cost_ns=cost_ns)
        self._pool.dispatch(action.lane_id, batch)

    def _on_done(self, lane_id: int, batch: Batch, outcome: Outcome) -> None:
        """Runs on the lane's thread: one wake-up of the event loop per batch."""
        assert self._loop is not None, "only a started batcher dispatches"
        self._loop.call_soon_threadsafe(self._complete, lane_id, batch, outcome)

    def _complete(self, lane_id: int, batch: Batch, outcome: Outcome) -> None:
        items = self._load.end(lane_id, batch)
        if is_lost(outcome):
            for item in items:
                fail(item, outcome)
            self._on_device_lost(outcome)
            return
        is_broken = isinstance(outcome, ServiceError) and len(items) > 1 and not self._is_closing
        if is_broken:
            self._run_apart(items, lane_id)
        try:
            if len(self._queue):
                self._step()  # first, so that the lane does not wait for this batch's answers
        finally:
            if isinstance(outcome, BatchResult):
                self._resolve(batch, items, outcome, lane_id)
            elif not is_broken:
                for item in items:
                    fail(item, outcome)
            self._check_drained()

    def _run_apart(self, items: tuple[Pending, ...], lane_id: int) -> None:
        """Runs the requests of a failed batch one by one: whichever broke it fails alone, its neighbours do not.

        They go to the same lane at once, beyond its depth; until they are done the policy sees it as full.
        """
        rules = self._rules
        assert rules is not None, "only a started batcher dispatches"
        now_ns = self._clock()
        for item in items:
            self._hand_over(Dispatch((item,), own_bucket(item, rules.buckets), lane_id), rules, now_ns)

    def _resolve(self, batch: Batch, items: tuple[Pending, ...], result: BatchResult, lane_id: int) -> None:
        timings = result.timings
        completed_ns = self._clock()
        stamp_lane_times(items, timings, completed_ns)
        for item, outputs in zip(items, result.outputs, strict=True):
            answer(item, outputs)
        assert self._recorder is not None, "only a started batcher dispatches"
        facts = self._watch.batch_facts(batch, lane_id, items[0])
        self._recorder.record_batch(batch.bucket, batch.size, len(items), timings, lane_id, facts)
        self._watch.activity.batcher_ns += self._clock() - completed_ns

    def _expire(self, now_ns: int) -> None:
        late = self._queue.expire(now_ns)
        self._watch.left(late, now_ns)
        for item in late:
            fail(item, expired(self._spec.name, now_ns - item.queued_ns))
        self._check_drained()

    def _end_waiting(self, error: ServiceError) -> None:
        """Ends everything that waits for a lane with `error`."""
        waiting = list(self._queue)
        self._watch.left(waiting, self._clock())
        for item in waiting:
            self._queue.discard(item)
            fail(item, error)

    def _check_drained(self) -> None:
        if self._load.is_empty:
            self._pause.lanes_are_empty()
        if self._drained is not None and not len(self._queue) and self._load.is_empty:
            self._drained.set()

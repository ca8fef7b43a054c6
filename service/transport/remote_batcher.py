"""A model's queue as a front end sees it: requests are placed in shared memory and handed to the engine's queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.batching.pending import Submitted
from service.batching.policy import Rules
from service.batching.workload import Workload
from service.models import ModelSpec
from service.requests import Clock, InferenceRequest
from service.telemetry.activity import Activity
from service.tensors import IN_PLACE_FROM_BYTES, HostArray, aligned
from service.transport.descriptors import Done, Placed, Submit
from service.transport.objects import PublishedModel
from service.transport.placing import ResultSizes, Tensors, place
from service.transport.remote_requests import RemoteRequests
from service.transport.room import Lease, Room


class RemoteBatcher:
    """A `Submitter` whose batcher is in the engine process. On the event loop.

    Args:
        published: the model.
        requests: where they go.
        activity: what is noted of them here.
        clock: monotonic nanoseconds.
    """

    def __init__(self, published: PublishedModel, requests: RemoteRequests, activity: Activity, clock: Clock) -> None:
        self._number = published.number
        self._spec = published.spec
        self._lanes = max(1, published.lanes)
        self._requests = requests
        self._activity = activity
        self._clock = clock
        buckets = published.spec.buckets
        self._workload = Workload(
            Rules(buckets=buckets, costs=published.costs, max_queue_delay_ns=0, lane_depth=1)  # costs ask for neither
        )
        self._result_sizes = ResultSizes(published.spec)
        self._backlog_until_ns = 0.0

    def __repr__(self) -> str:
        return f"<RemoteBatcher {self._spec.name} number={self._number}>"

    @property
    def spec(self) -> ModelSpec:
        """The model's tensors."""
        return self._spec

    @property
    def activity(self) -> Activity:
        """What a diagnosis wants to know of its requests; the engine adds up those of all front ends."""
        return self._activity

    def submit(self, request: InferenceRequest) -> Submitted:
        """Hands a request to the engine; see `Submitter`.

        What the engine refuses at once ends the future instead of being raised.

        Raises:
            NotReady: there is no engine.
            Overloaded: the shared memory of this front end is in use.
            PayloadTooLarge: see `RemoteRequests.send`.
        """
        self._requests.check()
        leases: list[Lease] = []
        try:
            tensors, result_offset, result_bytes = self._place(request, leases)
        except BaseException:
            for lease in leases:
                lease.release()
            raise
        stamps = request.stamps
        submit = Submit(
            number=0,
            model=self._number,
            form=request.form,
            priority=request.priority,
            rows=request.rows,
            deadline_ns=request.deadline_ns,
            nbytes=request.nbytes,
            received=stamps.received,
            read=stamps.read,
            parsed=stamps.parsed,
            prepared=stamps.prepared,
            result_offset=result_offset,
            result_bytes=result_bytes,
            dims=request.dims,
            outputs=request.outputs,
            inputs=tensors.placed,
        )
        self._backlog_until_ns = max(self._backlog_until_ns, stamps.prepared) + self.lane_time_ns(request)
        return self._requests.send(submit, tensors, request, self, leases)

    def cancel(self, item: Submitted) -> bool:
        """Asks the engine to drop a request whose client has gone; see `Submitter`."""
        return self._requests.cancel(item)

    def backlog_ns(self, priority: int) -> float:
        """As the engine told with its last answer, less the time since; what was submitted after that counts too.

        The engine tells of the model's default priority alone, whatever is asked for.
        """
        return max(0.0, self._backlog_until_ns - self._clock())

    def lane_time_ns(self, request: InferenceRequest) -> float:
        """What a request takes of all lanes' time, were they one; see `Submitter`."""
        home = self._spec.buckets.home(request.rows, request.dims, request.form)
        return 0.0 if home is None else self._workload.work_ns(request.rows, home) / self._lanes

    def told(self, done: Done) -> None:
        """Learns from an answer how far the engine's queue is behind."""
        self._backlog_until_ns = float(done.told_ns + done.backlog_ns)

    def _place(self, request: InferenceRequest, leases: list[Lease]) -> tuple[Tensors, int, int]:
        """Puts the inputs where the engine reads them, and takes room for the outputs."""
        room = self._requests.room
        result_bytes = self._result_sizes.nbytes(request.rows, request.dims, request.outputs, request.form)
        where = [_lying(array, room, leases) for array in request.inputs]
        copied = [array for array, placed in zip(request.inputs, where, strict=True) if placed is None]
        input_bytes = sum(aligned(array.nbytes) for array in copied if not array.dtype.hasobject)
        if not input_bytes + result_bytes:
            tensors = place(copied, room.host_region, 0, 0)
            return _merged(where, tensors), 0, 0
        lease = room.take(input_bytes + result_bytes)
        leases.append(lease)
        tensors = place(copied, room.host_region, lease.offset, input_bytes)
        return _merged(where, tensors), lease.offset + input_bytes, result_bytes


def _lying(array: HostArray, room: Room, leases: list[Lease]) -> Placed | None:
    """Where an array lies in the region already, as the body of a large request does; held from now on."""
    if array.nbytes < IN_PLACE_FROM_BYTES or array.dtype.hasobject:
        return None
    found = room.find(array)
    if found is None:
        return None
    lease, offset = found
    lease.retain()
    leases.append(lease)
    return Placed(offset, array.nbytes, array.shape)


def _merged(where: Sequence[Placed | None], copied: Tensors) -> Tensors:
    """What lay there already and what was copied, in the order of the inputs."""
    rest: Iterator[Placed] = iter(copied.placed)
    return Tensors(tuple(placed or next(rest) for placed in where), copied.inline)

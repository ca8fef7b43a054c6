"""A request, a batch, their results and their time stamps. Nothing here knows HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from service.buckets import Bucket, DimSizes, Form
from service.tensors import HostArray

ParameterValue: TypeAlias = str | bool | int | float

Clock: TypeAlias = Callable[[], int]
"""Nanoseconds of the monotonic clock."""


class Stamps:
    """The moments of one request, in nanoseconds of the monotonic clock; 0 is "not reached".

    Written by whoever does the step, in the order below; read once, when the request ends.
    """

    __slots__ = (
        "completed",
        "computed",
        "copied_in",
        "copied_out",
        "dispatched",
        "formed",
        "parsed",
        "prepared",
        "read",
        "received",
        "rendered",
        "sent",
        "started",
        "uploaded",
    )

    def __init__(self, received: int) -> None:
        self.received = received  # first event of the request reached the server
        self.read = 0  # the whole body is here
        self.parsed = 0  # header parsed, tensors validated
        self.prepared = 0  # media became tensors (equal to `parsed` for raw tensors); handed to the queue
        self.formed = 0  # as if all waiting for company had come first: no batch was kept open for it any more
        self.dispatched = 0  # the policy gave it to a lane
        self.started = 0  # the lane's thread began
        self.uploaded = 0  # its inputs are there; until `copied_in` it waits for the batch in front
        self.copied_in = 0  # rows stand in the lane's buffers (h2d)
        self.computed = 0  # the model ran
        self.copied_out = 0  # the rows are the request's own again (d2h)
        self.completed = 0  # the event loop took the result
        self.rendered = 0  # the response is encoded
        self.sent = 0  # the response is handed to the socket


class StageTimings(NamedTuple):
    """Durations of the stages of one request, in nanoseconds; contiguous, so they sum to sent - received."""

    read: int
    parse: int
    prepare: int
    queue: int
    dispatch: int
    h2d: int
    compute: int
    d2h: int
    complete: int
    render: int
    send: int

    @classmethod
    def from_stamps(cls, stamps: Stamps) -> StageTimings:
        """Timings of a request that ran to its end: every stamp is set."""
        return cls(
            stamps.read - stamps.received,
            stamps.parsed - stamps.read,
            stamps.prepared - stamps.parsed,
            stamps.dispatched - stamps.prepared,
            stamps.started - stamps.dispatched,
            stamps.copied_in - stamps.started,
            stamps.computed - stamps.copied_in,
            stamps.copied_out - stamps.computed,
            stamps.completed - stamps.copied_out,
            stamps.rendered - stamps.completed,
            stamps.sent - stamps.rendered,
        )


class RequestFacts(NamedTuple):
    """What a diagnosis wants to know of an answered request beside its stages; durations in nanoseconds.

    Attributes:
        formation: of `StageTimings.queue`, while a lane had room and the batch was kept open for company.
        lane_wait: of `StageTimings.h2d`, waiting on the lane for the batch in front.
        is_json: 1 if its tensors came as JSON, else 0.
        body_bytes: of the request's body, decompressed.
        answer_bytes: of the answer's body.
        encode: CPU work of encoding the answer.
    """

    formation: int = 0
    lane_wait: int = 0
    is_json: int = 0
    body_bytes: int = 0
    answer_bytes: int = 0
    encode: int = 0


NO_FACTS = RequestFacts()


def waits(stamps: Stamps) -> tuple[int, int]:
    """`RequestFacts.formation` and `lane_wait` of a request that ran to its end; 0 where nobody noted them."""
    formation = stamps.formed - stamps.prepared if stamps.formed else 0
    return formation, stamps.copied_in - stamps.uploaded if stamps.uploaded else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InferenceRequest:
    """Validated input of one request, ready to join a batch. Compared by identity.

    Attributes:
        inputs: host_ arrays in the order of `ModelSpec.inputs`, each of `rows` rows, C-contiguous, read-only; of
            `MediaForm.inputs` where `form` says so.
        rows: leading extent of every input (1 for a model without a batch dimension).
        dims: sizes of the model's dynamic dimensions, in the order of `BucketTable.dim_names`.
        outputs: indices into `ModelSpec.outputs` that the client wants, ascending.
        priority: 1 is the most urgent.
        deadline_ns: moment of the monotonic clock after which it must not be dispatched any more.
        nbytes: bytes of the inputs on the wire.
        stamps: its moments so far.
        form: what `inputs` and `outputs` mean: tensors of `ModelSpec`, or of its `media`.
    """

    inputs: tuple[HostArray, ...]
    rows: int
    dims: DimSizes
    outputs: tuple[int, ...]
    priority: int
    deadline_ns: int
    nbytes: int
    stamps: Stamps
    form: Form = Form.TENSORS


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that run together.

    Attributes:
        bucket: the padded shape they run in.
        requests: in row order; their dims are covered by the bucket's.
        size: sum of their rows, at most `bucket.padded_size`.
    """

    bucket: Bucket
    requests: tuple[InferenceRequest, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimings:
    """What a device's own clock tells of one batch, and the host of starting it; durations in nanoseconds.

    Attributes:
        h2d: copying in, from its beginning to its end.
        wait: from then until the batch in front was computed.
        d2h: copying out, likewise.
        enqueue: what the host took to give the batch to the device, gathering not counted.
    """

    h2d: int
    wait: int
    d2h: int
    enqueue: int


@dataclass(frozen=True, slots=True)
class BatchTimings:
    """Moments of one batch on its lane, in nanoseconds of the monotonic clock; see `Stamps`.

    Attributes:
        started: the lane's thread began.
        copied_in: the inputs are there, and the batch in front is computed.
        computed: the model ran.
        copied_out: the rows are the requests' own.
        device: None where the lane has none.
    """

    started: int
    copied_in: int
    computed: int
    copied_out: int
    device: DeviceTimings | None = None


class BatchFacts(NamedTuple):
    """What a diagnosis wants to know of a batch beside its timings.

    Attributes:
        useful_volume: sum over its rows of the product of their dims before padding; the rows where there are none.
        is_cold: 1 if it was the first of its bucket on its lane and nothing was warmed for it, else 0.
        queued: nanoseconds that its first request was in the queue.
        kept_open: nanoseconds of these in which a lane had room, and the batch was kept open for company.
        handed_over: nanoseconds from its dispatch until the lane's thread began.
    """

    useful_volume: int = 0
    is_cold: int = 0
    queued: int = 0
    kept_open: int = 0
    handed_over: int = 0


NO_BATCH_FACTS = BatchFacts()


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a lane returns for a batch.

    Attributes:
        outputs: per request, in the batch's order: one array per index in `InferenceRequest.outputs`, owned by
            the request, C-contiguous, padding removed.
        timings: the batch's moments.
    """

    outputs: tuple[tuple[HostArray, ...], ...]
    timings: BatchTimings

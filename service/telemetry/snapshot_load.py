"""What requests, queue, stations, host and client did during a window, frozen. None is "no data", never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from service.buckets import DimSizes
from service.telemetry.snapshot_probes import Interval


class Stage(Enum):
    """A named part of a request's time, in their order; together they are the whole of it."""

    READ = "read"
    PARSE = "parse"
    PREPARE = "prepare"
    FORMATION = "formation"
    """In the queue although a lane had room: the batch was kept open for company."""
    BACKLOG = "backlog"
    """In the queue, or on a lane behind another batch, because no lane had room."""
    DISPATCH = "dispatch"
    H2D = "h2d"
    """Gathering and copying in; the wait for the batch in front counts as BACKLOG."""
    COMPUTE = "compute"
    D2H = "d2h"
    COMPLETE = "complete"
    RENDER = "render"
    SEND = "send"


class Station(Enum):
    """A resource with a service demand."""

    EVENT_LOOP = "event_loop"
    """The thread that reads, parses, schedules and answers; counted in CPU seconds. Of several front ends in processes
    of their own, each counts as the busiest."""
    ENGINE_LOOP = "engine_loop"
    """Behind such front ends, the one thread that schedules for all of them; counted in CPU seconds."""
    THREAD_POOL = "thread_pool"
    """Threads that decode, preprocess and tokenize; counted in CPU seconds."""
    BATCHER = "batcher"
    H2D = "h2d"
    DEVICE = "device"
    """What runs the model: the GPU, or the lanes' threads of the CPU backend; counted in seconds of its being busy."""
    D2H = "d2h"
    ENCODE = "encode"


@dataclass(frozen=True, slots=True)
class Durations:
    """Several durations in seconds.

    Attributes:
        count: how many.
        sum_s: their sum.
        p50_s: their median.
        p99_s: their 99th percentile.
    """

    count: int
    sum_s: float
    p50_s: float | None = None
    p99_s: float | None = None

    @property
    def mean_s(self) -> float | None:
        """Their mean, None of none."""
        return self.sum_s / self.count if self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFigures:
    """The requests of the window.

    Attributes:
        rows: rows of the answered requests.
        duration: of the answered requests, from the first byte to the response handed to the socket.
        stages: the same time by stage; a stage that is absent was not recorded.
        failures: failed and refused requests by reason (`errors.ServiceError.reason`).
        in_flight_mean: time average of the number of requests between their first byte and their answer.
        in_flight_std: standard deviation of the same over time.
        json_share: share of the answered requests whose tensors came as JSON.
        body_bytes_mean: bytes of a request's body.
        answer_bytes_mean: bytes of an answer's body.
    """

    rows: int
    duration: Durations
    stages: Mapping[Stage, Durations]
    failures: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    in_flight_mean: float | None = None
    in_flight_std: float | None = None
    json_share: float | None = None
    body_bytes_mean: float | None = None
    answer_bytes_mean: float | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request by its first byte: seconds since the window began, its rows, its dims before padding."""

    at_s: float
    rows: int
    dims: DimSizes = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalFigures:
    """How requests arrived, refused ones included.

    Attributes:
        rows_per_s: offered rows per second.
        gap_cv2: squared coefficient of variation of the gaps between arrivals; 1 for a Poisson stream.
        log: arrivals one by one in their order, as far as the ring that keeps them reaches.
    """

    rows_per_s: float
    gap_cv2: float | None = None
    log: tuple[Arrival, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """The queue over the window.

    Attributes:
        depth_mean: time average of the requests that wait.
        depth_slope_per_s: by how many requests per second the depth grows, fitted over the window.
    """

    depth_mean: float
    depth_slope_per_s: Interval | None = None


@dataclass(frozen=True, slots=True)
class StationFigures:
    """One station.

    Attributes:
        busy_s: seconds of service that it gave, over all of its servers.
        rows: rows that it served.
        servers: threads, engines or lanes that serve side by side.
        within: the station whose busy time holds this one's too, such as the event loop's for encoding.
    """

    busy_s: float
    rows: int
    servers: int = 1
    within: Station | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFigures:
    """The process and its machine; ratios lie between 0 and 1.

    Attributes:
        cpu_count: cores that affinity and quota leave to the process.
        frontends: front ends in processes of their own; 0 where one process is all.
        loop_lag_p99_s: lateness of the event loop's timer; of several front ends that of the busiest.
        loop_lag_mean_s: likewise, its mean.
        loop_wait_ratio: share of the window in which the event loop's thread could run and had no core; of front ends
            in processes of their own it is not known.
        gil_wait_ratio: share of the time that a thread which wants the interpreter waits for it.
        throttled_period_ratio: share of the cgroup's periods in which its quota ran out.
        throttled_time_ratio: share of the window during which the quota had run out.
        steal_ratio: share of the CPU time that the hypervisor gave to others.
        pressure_ratio: share of the window in which some thread waited for a core (PSI).
        nic_bytes_per_s: what the network interfaces carry at most, either way; virtual ones do not count.
        nic_used_bytes_per_s: what they received or sent, whichever is more, whoever's it was.
    """

    cpu_count: float | None = None
    frontends: int = 0
    loop_lag_p99_s: float | None = None
    loop_lag_mean_s: float | None = None
    loop_wait_ratio: float | None = None
    gil_wait_ratio: float | None = None
    throttled_period_ratio: float | None = None
    throttled_time_ratio: float | None = None
    steal_ratio: float | None = None
    pressure_ratio: float | None = None
    nic_bytes_per_s: float | None = None
    nic_used_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFigures:
    """What a load generator told of itself.

    Attributes:
        concurrency: requests that it keeps in flight; None for an open loop.
        think_s: its pause between an answer and the next request.
        latency_mean_s: what it measured, from sending to the whole answer.
        cpu_busy_ratio: share of a core that it uses, between 0 and 1 per process, the busiest process.
    """

    concurrency: int | None = None
    think_s: float = 0.0
    latency_mean_s: float | None = None
    cpu_busy_ratio: float | None = None

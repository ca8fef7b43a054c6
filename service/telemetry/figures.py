"""What a scrape sees: every total at one moment, frozen, and the gauges to ask for the present state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from service.buckets import Bucket, Unserved
from service.device_figures import LaneFigures, MemoryOwner, MissReason
from service.telemetry.device_totals import DeviceTotals
from service.telemetry.front_ends import FrontEndMoment
from service.telemetry.gpu_figures import GpuFigures
from service.telemetry.histogram import Histograms
from service.telemetry.totals import BatchTotals, RequestTotals


@dataclass(frozen=True, slots=True, eq=False)
class ModelGauges:
    """Ways to ask a loaded model for its present state, called by scrapes on any thread, and what start-up found.

    Attributes:
        queued_requests: requests that wait for a lane.
        queued_bytes: their input bytes.
        in_flight_requests: requests received and not answered.
        lanes: lanes of the model.
        busy_lanes: those that run a batch.
        lane_figures: what each lane tells of its device.
        weights_bytes: device memory of what the lanes share.
        unserved: buckets that no batch may use, and why.
        startup_ns: how long each phase of its start-up took, by the phase's name, in their order.
    """

    queued_requests: Callable[[], int]
    queued_bytes: Callable[[], int]
    in_flight_requests: Callable[[], int]
    lanes: Callable[[], int]
    busy_lanes: Callable[[], int]
    lane_figures: Callable[[], Sequence[LaneFigures]] = tuple
    weights_bytes: Callable[[], int] = int
    unserved: Mapping[Bucket, Unserved] = field(default_factory=lambda: MappingProxyType({}))
    startup_ns: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, eq=False)
class ModelFigures:
    """Everything counted for one model version.

    Attributes:
        name: the model's name.
        version: its version.
        requests: answered requests.
        failures: failed requests per reason, every one of `metrics.REASONS`.
        batches: batches that ran.
        bucket_labels: labels of the bucket indices in `batches`.
        buckets: the buckets themselves; None for all that share the label of the others.
        last_inference_unix_ms: when its latest batch ended, 0 if none did.
        device: what its lanes did on their device.
        graphs_missing: lanes on which a bucket has no graph, by reason and bucket.
        device_bytes: memory of the device, by owner.
        gauges: its present state, None after it was unloaded.
    """

    name: str
    version: str
    requests: RequestTotals
    failures: Mapping[str, int]
    batches: BatchTotals
    bucket_labels: tuple[str, ...]
    buckets: tuple[Bucket | None, ...]
    last_inference_unix_ms: int
    device: DeviceTotals
    graphs_missing: Mapping[MissReason, Mapping[Bucket, int]]
    device_bytes: Mapping[MemoryOwner, int]
    gauges: ModelGauges | None


@dataclass(frozen=True, slots=True, eq=False)
class ServerFigures:
    """Everything counted by one server.

    Attributes:
        models: every model version that was ever loaded.
        unattributed_failures: failed requests of no served model per reason, every one of `metrics.REASONS`.
        loop_lag: lateness of the event loop's timer, in nanoseconds.
        gpus: the GPUs that models use, as they were sampled last.
        open_streams: streams that are open now.
        dropped_frames: frames of streams that gave way to newer ones.
        front_ends: those in processes of their own, which are connected.
        restarts: how often each process was started again, by its name; empty where one process is all.
    """

    models: tuple[ModelFigures, ...]
    unattributed_failures: Mapping[str, int]
    loop_lag: Histograms
    gpus: tuple[GpuFigures, ...]
    open_streams: int = 0
    dropped_frames: int = 0
    front_ends: tuple[FrontEndMoment, ...] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)

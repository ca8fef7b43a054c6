"""All that a diagnosis reads: one model on one server during one window, frozen.

Promises: durations are seconds, rates are per second, ratios lie between 0 and 1; what was not recorded is None or
absent, so that "no data" is never taken for zero. Rows are the items of every law; N and R count requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from service.buckets import Bucket
from service.telemetry.snapshot_device import BucketUse, DeviceFigures, GpuWindow, LayerProfile
from service.telemetry.snapshot_load import (
    ArrivalFigures,
    ClientFigures,
    HostFigures,
    QueueFigures,
    RequestFigures,
    Stage,
    Station,
    StationFigures,
)
from service.telemetry.snapshot_probes import ProbeFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that the figures are of.

    Attributes:
        began_unix_s: seconds since 1970 by the clock on the wall.
        duration_s: by the monotonic clock.
        wall_duration_s: by the clock on the wall; it differs where that was set meanwhile.
        ready_before_s: how long the model had been ready when the window began; negative if it was not yet.
        experiment_share: share of it in which exclusive probes held requests back.
    """

    began_unix_s: float
    duration_s: float
    wall_duration_s: float | None = None
    ready_before_s: float | None = None
    experiment_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the model's card and plan say that a rule or a fix speaks of.

    Attributes:
        name: the model's.
        version: its version.
        backend: `tensorrt` or `onnxruntime`.
        task: `tensor`, or what its media routes make of it.
        batch_sizes: ascending padded batch sizes.
        dim_names: its dynamic dimensions, the batch apart.
        dim_sizes: ascending padded sizes of each; None for one that is served at its exact size.
        max_queue_delay_s: how long an unfilled batch may wait while a lane is idle.
        precision: that its engine was built in, such as `FP16`; empty if unknown.
        profile_opts: optimum volume (rows times dims) of each optimization profile, in their order.
        has_media_form: whether its preprocessing runs on the device.
    """

    name: str
    version: str
    backend: str
    task: str = "tensor"
    batch_sizes: tuple[int, ...] = (1,)
    dim_names: tuple[str, ...] = ()
    dim_sizes: tuple[tuple[int, ...] | None, ...] = ()
    max_queue_delay_s: float = 0.0
    precision: str = ""
    profile_opts: tuple[int, ...] = ()
    has_media_form: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """One model during one window.

    Attributes:
        window: the time.
        model: what it is.
        requests: what was asked and answered.
        stations: the resources; one that is absent was not recorded.
        buckets: one entry per bucket that ran.
        costs_s: cost table of warm-up, seconds per batch, also of buckets that did not run.
        queue: None if its depth was not recorded.
        arrivals: None if they were not recorded.
        device: None if the lanes tell nothing.
        gpu: None without one.
        layers: by profiled bucket, the one that took most time first; empty if none was.
        host: the process and its machine.
        client: None unless a load generator told of itself.
        probes: what experiments told.
    """

    window: Window
    model: ModelFacts
    requests: RequestFigures
    stations: Mapping[Station, StationFigures] = field(default_factory=lambda: MappingProxyType({}))
    buckets: tuple[BucketUse, ...] = ()
    costs_s: Mapping[Bucket, float] = field(default_factory=lambda: MappingProxyType({}))
    queue: QueueFigures | None = None
    arrivals: ArrivalFigures | None = None
    device: DeviceFigures | None = None
    gpu: GpuWindow | None = None
    layers: tuple[LayerProfile, ...] = ()
    host: HostFigures = field(default_factory=HostFigures)
    client: ClientFigures | None = None
    probes: ProbeFigures = field(default_factory=ProbeFigures)

    @property
    def rows_per_s(self) -> float:
        """Throughput X in answered rows per second."""
        return self.requests.rows / self.window.duration_s if self.window.duration_s > 0 else 0.0

    @property
    def requests_per_s(self) -> float:
        """Throughput in answered requests per second."""
        return self.requests.duration.count / self.window.duration_s if self.window.duration_s > 0 else 0.0

    @property
    def latency_s(self) -> float | None:
        """Mean time R of an answered request; None if there was none."""
        return self.requests.duration.mean_s

    def stage_s(self, stage: Stage) -> float | None:
        """Mean time of a request in `stage`; None if it was not recorded."""
        durations = self.requests.stages.get(stage)
        return durations.mean_s if durations else None

    def stage_share(self, *stages: Stage) -> float | None:
        """Share of the mean latency that these stages take together; None if one of them was not recorded."""
        means = [self.stage_s(stage) for stage in stages]
        latency_s = self.latency_s
        if not latency_s or any(mean is None for mean in means):
            return None
        return sum(mean for mean in means if mean is not None) / latency_s

    def cost_of(self, use: BucketUse) -> float | None:
        """Seconds of one batch: as it ran in the window, else as warm-up measured it, else None."""
        return (use.compute.mean_s if use.compute else None) or self.costs_s.get(use.bucket)

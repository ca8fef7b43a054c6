"""What buckets, device and layers did during a window, frozen. None is "no data", never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from service.buckets import Bucket
from service.telemetry.gpu_figures import ClockEvent
from service.telemetry.snapshot_load import Durations


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketUse:
    """The batches of one bucket.

    Attributes:
        bucket: its padded shape.
        batches: that ran.
        rows: in them, padding not counted.
        useful_volume: sum over the rows of the product of their dims before padding (1 each without dims).
        profile: the optimization profile that runs it.
        compute: by the device's own clock.
        h2d: duration of the copy in by the device's own clock, waiting not counted.
        d2h: likewise of the copy out.
        enqueue: what the host took to launch it.
        h2d_bytes: copied in, padding included.
        d2h_bytes: copied out, padding included.
        replays: batches that a graph ran.
        eager_runs: batches that were launched without one; always 0 on the CPU.
        miss_reason: why it has no graph: a value of `MissReason`, or `disabled`.
        cold: batches that were the first of this bucket on their lane, had to allocate, or to capture.
    """

    bucket: Bucket
    batches: int
    rows: int
    useful_volume: int | None = None
    profile: int | None = None
    compute: Durations | None = None
    h2d: Durations | None = None
    d2h: Durations | None = None
    enqueue: Durations | None = None
    h2d_bytes: int | None = None
    d2h_bytes: int | None = None
    replays: int = 0
    eager_runs: int = 0
    miss_reason: str | None = None
    cold: Durations | None = None

    @property
    def padded_rows(self) -> int:
        """Rows that were computed, padding included."""
        return self.batches * self.bucket.padded_size

    @property
    def padded_volume(self) -> int:
        """Volume that was computed, padding of rows and dims included."""
        return self.batches * self.bucket.volume


class GapCause(Enum):
    """Why the device was idle although requests waited."""

    FORMATION = "formation"
    HOST_SUBMIT = "host_submit"
    SYNC_NOTIFY = "sync_notify"
    COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """The model's lanes on their device; a lane on the CPU has neither copies nor gaps.

    Attributes:
        lanes: of the model.
        lane_depth: batches that a lane may hold at once.
        lanes_busy_mean: mean number of lanes that compute a batch while one at least does.
        pageable_copies: copies from or to memory that is not page-locked.
        pageable_bytes: their bytes.
        hot_allocations: allocations of device or pinned memory after the model was ready.
        hot_allocation_s: seconds spent on them.
        shape_switches: batches before which the context changed its shape or profile.
        idle_with_backlog_s: seconds during which the device was idle although requests waited, by cause.
    """

    lanes: int
    lane_depth: int = 1
    lanes_busy_mean: float | None = None
    pageable_copies: int | None = None
    pageable_bytes: int | None = None
    hot_allocations: int | None = None
    hot_allocation_s: float | None = None
    shape_switches: int | None = None
    idle_with_backlog_s: Mapping[GapCause, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWindow:
    """One GPU over the window, by NVML and GPM; ratios lie between 0 and 1.

    Attributes:
        name: its kind.
        sm_clock_ratio: mean clock of the SMs while it worked, over the highest.
        sm_clock_spread: (highest - lowest) / mean of the same.
        clock_events: share of the samples in which each reason held the clocks down.
        utilization_ratio: share of the time in which a kernel ran.
        sm_activity_ratio: share of the SMs that were busy.
        tensor_activity_ratio: share of the time in which the tensor cores worked.
        memory_bandwidth_ratio: memory bandwidth used, of the highest in theory.
        other_processes: processes of others that compute on it.
    """

    name: str
    sm_clock_ratio: float | None = None
    sm_clock_spread: float | None = None
    clock_events: Mapping[ClockEvent, float] = field(default_factory=lambda: MappingProxyType({}))
    utilization_ratio: float | None = None
    sm_activity_ratio: float | None = None
    tensor_activity_ratio: float | None = None
    memory_bandwidth_ratio: float | None = None
    other_processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFigures:
    """One layer of one bucket as its profiler and its description tell it.

    Attributes:
        name: the layer's.
        kind: the runtime's word for it.
        time_s: per execution, as profiled: with what the profiler itself adds.
        flops: multiplications and additions per execution; None where no rule knows them.
        nbytes: read and written per execution; None where a format is not known.
        dtype: that it computes in, such as `FP16`; empty if unknown.
        tactic: the kernel's name; empty if unknown.
        origin: names of the ONNX nodes that it came from.
        is_reformat: whether it only changes type or layout.
        is_matrix_product: whether tensor cores could run it (convolution, GEMM, attention).
        is_tensor_core: whether its tactic uses them; None if the tactic does not say.
        is_aligned: whether its channels are multiples of what tensor cores take; None if unknown.
    """

    name: str
    kind: str
    time_s: float
    flops: float | None = None
    nbytes: float | None = None
    dtype: str = ""
    tactic: str = ""
    origin: tuple[str, ...] = ()
    is_reformat: bool = False
    is_matrix_product: bool = False
    is_tensor_core: bool | None = None
    is_aligned: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """P6: the layers of one bucket.

    Attributes:
        bucket: whose.
        span_s: what one execution takes without the profiler.
        layers: in the order of execution.
        are_overlapping: whether layers ran side by side, so that their times may exceed the span.
    """

    bucket: Bucket
    span_s: float
    layers: tuple[LayerFigures, ...]
    are_overlapping: bool = False

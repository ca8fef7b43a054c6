"""Snapshots made by hand: a healthy server on a GPU with every probe run, and ways to spoil it.

The healthy server: 10,000 single-row requests a second in batches of about 8, 1.5 ms each, so 15 are in flight. A batch
of b rows takes 0.4 + 0.02 b ms by its graph; full batches of 32 would make 30,769 rows a second, so its load is 0.33.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from service.buckets import Bucket
from service.telemetry.snapshot import MetricsSnapshot, ModelFacts, Window
from service.telemetry.snapshot_device import BucketUse, DeviceFigures, GapCause, GpuWindow, LayerFigures, LayerProfile
from service.telemetry.snapshot_load import (
    Arrival,
    ArrivalFigures,
    ClientFigures,
    Durations,
    HostFigures,
    QueueFigures,
    RequestFigures,
    Stage,
    Station,
    StationFigures,
)
from service.telemetry.snapshot_probes import Interval, LaunchProbe, Peaks, ProbeFigures

WINDOW_S = 60.0
REQUESTS = 600_000
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
STAGES_S = {
    Stage.READ: 20e-6,
    Stage.PARSE: 30e-6,
    Stage.PREPARE: 50e-6,
    Stage.FORMATION: 0.0,
    Stage.BACKLOG: 350e-6,
    Stage.DISPATCH: 80e-6,
    Stage.H2D: 100e-6,
    Stage.COMPUTE: 560e-6,
    Stage.D2H: 50e-6,
    Stage.COMPLETE: 60e-6,
    Stage.RENDER: 50e-6,
    Stage.SEND: 150e-6,
}


def around(value: float, half_width: float = 0.02) -> Interval:
    """An interval of `half_width`, as a share, around a value."""
    return Interval(value, value * (1 - half_width), value * (1 + half_width))


def cost_s(rows: int) -> float:
    """Seconds of a batch by its graph."""
    return 400e-6 + 20e-6 * rows


def requests(stages_s: dict[Stage, float] | None = None, *, count: int = REQUESTS, **changes) -> RequestFigures:
    """Requests whose mean stages are these, in flight as Little's law says."""
    means = STAGES_S | (stages_s or {})
    total_s = sum(means.values())
    fields = {
        "rows": count,
        "duration": Durations(count, total_s * count, total_s * 0.9, total_s * 2),
        "stages": MappingProxyType({stage: Durations(count, mean * count) for stage, mean in means.items()}),
        "in_flight_mean": count / WINDOW_S * total_s,
        "in_flight_std": (count / WINDOW_S * total_s) ** 0.5,
        "json_share": 0.0,
        "body_bytes_mean": 150_000.0,
        "answer_bytes_mean": 4_000.0,
    }
    return RequestFigures(**(fields | changes))


def bucket_use(bucket: Bucket, batches: int, rows: int, **changes) -> BucketUse:
    """A bucket whose batches replayed their graph."""
    compute_s = cost_s(bucket.padded_size)
    fields = {
        "useful_volume": rows,
        "profile": 0,
        "compute": Durations(batches, batches * compute_s),
        "h2d": Durations(batches, batches * 60e-6),
        "d2h": Durations(batches, batches * 5e-6),
        "enqueue": Durations(batches, batches * 12e-6),
        "h2d_bytes": batches * bucket.padded_size * 150_528,
        "d2h_bytes": batches * bucket.padded_size * 4_000,
        "replays": batches,
        "cold": Durations(0, 0.0),
    }
    return BucketUse(bucket=bucket, batches=batches, rows=rows, **(fields | changes))


def layer(name: str, time_s: float, bound: str, **changes) -> LayerFigures:
    """A layer that reaches 80 % of the roof that it is bound by, or 30 % of either."""
    flops, nbytes = {
        "compute": (time_s * 600e12 * 0.8, time_s * 4e12 * 0.2),
        "memory": (time_s * 600e12 * 0.1, time_s * 4e12 * 0.8),
        "neither": (time_s * 600e12 * 0.3, time_s * 4e12 * 0.3),
    }[bound]
    fields = {"flops": flops, "nbytes": nbytes, "dtype": "FP16", "tactic": "sm90_xmma_gemm"}
    fields |= {"is_matrix_product": bound == "compute", "is_tensor_core": True if bound == "compute" else None}
    return LayerFigures(name=name, kind="gemm", time_s=time_s, **(fields | changes))


def layer_profile(*layers: LayerFigures, span_s: float = 560e-6) -> LayerProfile:
    """A profile of the bucket of 8, whose layers come to 10 % more than the span."""
    total_s = sum(one.time_s for one in layers)
    scaled = tuple(replace(one, time_s=one.time_s * 1.1 * span_s / total_s) for one in layers)
    unit = [
        replace(
            one,
            flops=None if one.flops is None else one.flops * span_s / total_s,
            nbytes=None if one.nbytes is None else one.nbytes * span_s / total_s,
        )
        for one in scaled
    ]
    return LayerProfile(bucket=Bucket(8), span_s=span_s, layers=tuple(unit))


def probes(**changes) -> ProbeFigures:
    """Every probe's result on the healthy server."""
    launch = LaunchProbe(eager=around(700e-6), replay=around(560e-6), eager_host=around(150e-6))
    fields = {
        "launches": MappingProxyType({Bucket(8): launch}),
        "pinned_h2d_bytes_per_s": 22e9,
        "pinned_d2h_bytes_per_s": 8e9,
        "exposed_copy": MappingProxyType({Bucket(8): Interval(4e-6, 1e-6, 7e-6)}),
        "lane_rates": MappingProxyType({1: around(29_500), 2: around(30_769), 3: around(30_800), 4: around(30_900)}),
        "other_costs": MappingProxyType({Bucket(64): around(1.9 * cost_s(32))}),
        "profile_costs": MappingProxyType({Bucket(8): {0: around(560e-6), 1: around(600e-6)}}),
        "switch_cost": around(3e-3),
        "peaks": Peaks(flops_per_s={"FP16": 600e12}, bytes_per_s=4e12, empty_kernel_s=2e-6, cache_bytes=50 << 20),
        "direct_rows_per_s": around(30_000),
        "http_rows_per_s": around(22_000),
        "json_codec": around(2e-3),
        "binary_codec": around(60e-6),
        "device_preprocess": around(10e-6),
        "idle_factors": MappingProxyType({0.001: around(1.0), 0.1: around(1.01), 1.0: around(1.02)}),
        "interference": around(1.02),
    }
    return ProbeFigures(**(fields | changes))


def stations(rows: int = REQUESTS, **busy_shares: float) -> dict[Station, StationFigures]:
    """Stations by the share of the window that they were busy, of all their servers."""
    shares = {"event_loop": 0.45, "thread_pool": 0.02, "batcher": 0.05, "h2d": 0.10, "device": 0.70, "d2h": 0.01}
    shares |= {"encode": 0.06} | busy_shares
    servers = {"thread_pool": 8}
    parts = {"batcher": Station.EVENT_LOOP, "encode": Station.EVENT_LOOP}
    return {
        Station(name): StationFigures(
            share * WINDOW_S * servers.get(name, 1), rows, servers.get(name, 1), parts.get(name)
        )
        for name, share in shares.items()
    }


def poisson_like(count: int = 2000, rate: float = 10_000.0) -> tuple[Arrival, ...]:
    """Arrivals whose gaps are the quantiles of an exponential distribution in a scrambled, fixed order."""
    import math

    gaps = [-math.log(1 - (index + 0.5) / count) / rate for index in range(count)]
    at_s, arrivals = 0.0, []
    for index in range(count):
        at_s += gaps[index * 617 % count]
        arrivals.append(Arrival(at_s, 1))
    return tuple(arrivals)


MODEL = ModelFacts(
    name="resnet50", version="1", backend="tensorrt", batch_sizes=BATCH_SIZES, precision="FP16", profile_opts=(8, 64)
)


def healthy(**changes) -> MetricsSnapshot:
    """The healthy server; changes replace whole parts of it."""
    fields = {
        "window": Window(
            began_unix_s=1.8e9,
            duration_s=WINDOW_S,
            wall_duration_s=WINDOW_S + 0.001,
            ready_before_s=120.0,
            experiment_share=0.0,
        ),
        "model": MODEL,
        "requests": requests(),
        "stations": MappingProxyType(stations()),
        "buckets": (bucket_use(Bucket(8), 75_000, REQUESTS),),
        "costs_s": MappingProxyType({Bucket(size): cost_s(size) for size in BATCH_SIZES}),
        "queue": QueueFigures(depth_mean=3.5, depth_slope_per_s=Interval(0.0, -0.01, 0.01)),
        "arrivals": ArrivalFigures(rows_per_s=10_000.0, gap_cv2=1.0, log=poisson_like()),
        "device": DeviceFigures(
            lanes=2,
            lane_depth=2,
            lanes_busy_mean=1.05,
            pageable_copies=0,
            pageable_bytes=0,
            hot_allocations=0,
            hot_allocation_s=0.0,
            shape_switches=0,
            idle_with_backlog_s=MappingProxyType({GapCause.HOST_SUBMIT: 0.6, GapCause.SYNC_NOTIFY: 0.3}),
        ),
        "gpu": GpuWindow(
            name="NVIDIA H200",
            sm_clock_ratio=1.0,
            sm_clock_spread=0.0,
            utilization_ratio=0.7,
            sm_activity_ratio=0.5,
            tensor_activity_ratio=0.3,
            memory_bandwidth_ratio=0.3,
            other_processes=0,
        ),
        "layers": (
            layer_profile(
                layer("a", 48e-6, "compute"),
                layer("b", 48e-6, "memory"),
                layer("c", 4.0e-6, "neither", flops=0.0, nbytes=1e6),
            ),
        ),
        "host": HostFigures(
            cpu_count=16.0,
            loop_lag_p99_s=1e-3,
            gil_wait_ratio=0.05,
            throttled_period_ratio=0.0,
            throttled_time_ratio=0.0,
            steal_ratio=0.0,
            pressure_ratio=0.02,
            nic_bytes_per_s=12.5e9,
            nic_used_bytes_per_s=1.5e9,
        ),
        "client": ClientFigures(concurrency=None, latency_mean_s=1.55e-3, cpu_busy_ratio=0.4),
        "probes": probes(),
    }
    return MetricsSnapshot(**(fields | changes))


def bare() -> MetricsSnapshot:
    """A window with requests of which nothing but their count and time was recorded."""
    count = 1000
    return MetricsSnapshot(
        window=Window(began_unix_s=1.8e9, duration_s=WINDOW_S),
        model=ModelFacts(name="bare", version="1", backend="tensorrt"),
        requests=RequestFigures(rows=count, duration=Durations(count, 1.5), stages=MappingProxyType({})),
    )

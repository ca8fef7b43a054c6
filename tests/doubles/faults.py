"""One spoilt server per class of bottleneck: the healthy one with a single fault, and what that does to its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from service.buckets import Bucket
from service.diagnosis.finding import BottleneckClass as Kind
from service.telemetry.gpu_figures import ClockEvent
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import GapCause
from service.telemetry.snapshot_load import (
    Arrival,
    ArrivalFigures,
    ClientFigures,
    Durations,
    HostFigures,
    QueueFigures,
    Stage,
)
from service.telemetry.snapshot_probes import Interval, LaunchProbe
from tests.doubles.snapshots import (
    BATCH_SIZES,
    MODEL,
    REQUESTS,
    WINDOW_S,
    around,
    bucket_use,
    cost_s,
    healthy,
    layer,
    layer_profile,
    poisson_like,
    probes,
    requests,
    stations,
)

EIGHT, FULL = Bucket(8), Bucket(32)


def arrivals(rate: float, **changes) -> ArrivalFigures:
    return replace(ArrivalFigures(rows_per_s=rate, gap_cv2=1.0, log=poisson_like(rate=rate)), **changes)


def saturated(**changes) -> MetricsSnapshot:
    """27,000 rows a second in full batches of 32: 0.88 of what the device can do, and the event loop has room."""
    rows = 27_000 * 60
    fields = {
        "requests": requests({Stage.BACKLOG: 1.2e-3, Stage.COMPUTE: cost_s(32)}, count=rows),
        "stations": MappingProxyType(stations(rows, event_loop=0.55, device=0.88, h2d=0.25)),
        "buckets": (bucket_use(FULL, rows // 32, rows),),
        "arrivals": arrivals(27_000.0),
        "queue": QueueFigures(depth_mean=32.0, depth_slope_per_s=Interval(0.0, -0.1, 0.1)),
    }
    return healthy(**(fields | changes))


def overload() -> MetricsSnapshot:
    rows = 30_000 * 60
    return saturated(
        requests=requests(
            {Stage.BACKLOG: 20e-3, Stage.COMPUTE: cost_s(32)}, count=rows, failures={"overloaded": 590_000}
        ),
        stations=MappingProxyType(stations(rows, event_loop=0.6, device=0.98, h2d=0.28)),
        buckets=(bucket_use(FULL, rows // 32, rows),),
        arrivals=arrivals(40_000.0),
    )


def batch_formation_delay() -> MetricsSnapshot:
    rows = 1_000 * 60
    return healthy(
        model=replace(MODEL, max_queue_delay_s=4e-3),
        requests=requests({Stage.FORMATION: 3.0e-3, Stage.BACKLOG: 20e-6, Stage.COMPUTE: cost_s(4)}, count=rows),
        stations=MappingProxyType(stations(rows, event_loop=0.06, device=0.14, h2d=0.02)),
        buckets=(bucket_use(Bucket(4), rows // 4, rows),),
        arrivals=arrivals(1_000.0),
    )


def batch_too_small() -> MetricsSnapshot:
    rows = 2_200 * 60
    return healthy(
        model=replace(MODEL, batch_sizes=(1,)),
        requests=requests({Stage.BACKLOG: 0.8e-3, Stage.COMPUTE: cost_s(1)}, count=rows),
        stations=MappingProxyType(stations(rows, event_loop=0.12, device=0.92, h2d=0.13)),
        buckets=(bucket_use(Bucket(1), rows, rows),),
        costs_s=MappingProxyType({Bucket(1): cost_s(1)}),
        arrivals=arrivals(2_200.0),
        probes=probes(
            lane_rates=MappingProxyType({1: around(2_350), 2: around(2_381)}),
            other_costs=MappingProxyType({Bucket(2): around(cost_s(2))}),
        ),
    )


def cpu_preprocess() -> MetricsSnapshot:
    rows = 4_700 * 60
    return healthy(
        requests=requests({Stage.PREPARE: 5e-3, Stage.BACKLOG: 150e-6}, count=rows),
        stations=MappingProxyType(stations(rows, event_loop=0.25, thread_pool=0.95, device=0.35, h2d=0.05)),
        buckets=(bucket_use(EIGHT, rows // 8, rows),),
        arrivals=arrivals(4_700.0),
    )


def copy_bandwidth() -> MetricsSnapshot:
    rows, copy_s = 5_000 * 60, 0.9e-3
    batches = rows // 8
    use = bucket_use(
        EIGHT, batches, rows, h2d=Durations(batches, batches * copy_s), h2d_bytes=int(batches * copy_s * 20e9)
    )
    return healthy(
        requests=requests({Stage.H2D: 0.95e-3}, count=rows),
        stations=MappingProxyType(stations(rows, event_loop=0.25, device=0.35, h2d=0.56)),
        buckets=(use,),
        arrivals=arrivals(5_000.0),
        probes=probes(exposed_copy=MappingProxyType({EIGHT: around(0.35e-3)})),
    )


def pageable_or_allocating() -> MetricsSnapshot:
    base = healthy()
    batches = base.buckets[0].batches
    use = replace(base.buckets[0], h2d=Durations(batches, batches * 0.5e-3))
    assert base.device is not None
    device = replace(base.device, pageable_copies=batches, pageable_bytes=use.h2d_bytes)
    return replace(base, requests=requests({Stage.H2D: 0.55e-3}), buckets=(use,), device=device)


def _without_graphs(reason: str, eager: int, compute_s: float = 700e-6, enqueue_s: float = 600e-6) -> MetricsSnapshot:
    batches = REQUESTS // 8
    use = bucket_use(
        EIGHT,
        batches,
        REQUESTS,
        compute=Durations(batches, batches * compute_s),
        enqueue=Durations(batches, batches * enqueue_s),
        replays=batches - eager,
        eager_runs=eager,
        miss_reason=reason,
    )
    return healthy(
        requests=requests({Stage.COMPUTE: compute_s}), buckets=(use,), stations=MappingProxyType(stations(device=0.87))
    )


def launch_bound() -> MetricsSnapshot:
    return _without_graphs("disabled", REQUESTS // 8)


def launch_bound_by_tiny_layers() -> MetricsSnapshot:
    tiny = [layer(f"pointwise {index}", 1.8e-6, "neither", nbytes=1e6, flops=0.0) for index in range(300)]
    return healthy(layers=(layer_profile(*tiny, span_s=560e-6),))


def graph_miss() -> MetricsSnapshot:
    return _without_graphs("memory_budget", REQUESTS // 16)


def not_capturable() -> MetricsSnapshot:
    spoilt = _without_graphs("not_capturable", REQUESTS // 8)
    launch = LaunchProbe(eager=around(700e-6), replay=None, eager_host=around(600e-6))
    return replace(spoilt, probes=probes(launches=MappingProxyType({EIGHT: launch})))


def _at_roof(roof: str) -> MetricsSnapshot:
    base = saturated()
    assert base.gpu is not None
    layers = (layer("long", 80e-6, roof), layer("short", 20e-6, "memory" if roof == "compute" else "compute"))
    return replace(base, layers=(layer_profile(*layers),), gpu=replace(base.gpu, sm_activity_ratio=0.9))


def compute_bound() -> MetricsSnapshot:
    return _at_roof("compute")


def memory_bound() -> MetricsSnapshot:
    return _at_roof("memory")


def inefficient_layers() -> MetricsSnapshot:
    return healthy(
        layers=(
            layer_profile(
                layer("a", 60e-6, "compute"),
                layer("to FP32", 25e-6, "memory", is_reformat=True),
                layer("odd channels", 20e-6, "compute", is_tensor_core=False),
            ),
        )
    )


def gpu_idle_gaps() -> MetricsSnapshot:
    base = healthy()
    assert base.device is not None
    gaps_s = MappingProxyType({GapCause.HOST_SUBMIT: 2.0, GapCause.SYNC_NOTIFY: 13.0, GapCause.FORMATION: 1.0})
    return replace(base, device=replace(base.device, idle_with_backlog_s=gaps_s))


def lane_count() -> MetricsSnapshot:
    base = saturated()
    assert base.device is not None
    rates = MappingProxyType({1: around(29_000), 2: around(38_000), 3: around(39_000)})
    return replace(base, device=replace(base.device, lanes=1), probes=probes(lane_rates=rates))


def padding_waste() -> MetricsSnapshot:
    rows = 6_000 * 60
    others = {Bucket(size): around(cost_s(size)) for size in BATCH_SIZES if size < 32}
    return healthy(
        model=replace(MODEL, batch_sizes=(32,)),
        requests=requests({Stage.COMPUTE: cost_s(32)}, count=rows),
        stations=MappingProxyType(stations(rows, event_loop=0.3, device=0.78)),
        buckets=(bucket_use(FULL, rows // 8, rows),),
        costs_s=MappingProxyType({FULL: cost_s(32)}),
        arrivals=arrivals(6_000.0),
        probes=probes(other_costs=MappingProxyType(others)),
    )


def wrong_profile() -> MetricsSnapshot:
    costs = MappingProxyType({EIGHT: {0: around(560e-6), 1: around(430e-6)}})
    return healthy(probes=probes(profile_costs=costs))


def shape_switching() -> MetricsSnapshot:
    base = healthy()
    assert base.device is not None
    return replace(base, device=replace(base.device, shape_switches=3_000))


def python_bound() -> MetricsSnapshot:
    rows = 250 * 60
    return healthy(
        requests=requests({Stage.PARSE: 1.5e-3, Stage.RENDER: 0.5e-3}, count=rows, json_share=1.0),
        stations=MappingProxyType(stations(rows, event_loop=0.6, device=0.02, h2d=0.01)),
        buckets=(bucket_use(EIGHT, rows // 8, rows),),
        arrivals=arrivals(250.0),
        probes=probes(json_codec=around(2.0e-3), binary_codec=around(60e-6)),
    )


def client_limited() -> MetricsSnapshot:
    stages_s = {Stage.BACKLOG: 0.0, Stage.COMPUTE: cost_s(1)}
    rows = 52_000
    return healthy(
        requests=requests(stages_s, count=rows, in_flight_std=0.1),
        stations=MappingProxyType(stations(rows, event_loop=0.05, device=0.36, h2d=0.01)),
        buckets=(bucket_use(Bucket(1), rows, rows),),
        arrivals=arrivals(rows / WINDOW_S, gap_cv2=0.02),
        client=ClientFigures(concurrency=1, latency_mean_s=1.05e-3, cpu_busy_ratio=0.2),
    )


def network_payload() -> MetricsSnapshot:
    return healthy(
        requests=requests({Stage.READ: 1.5e-3, Stage.SEND: 0.6e-3}, body_bytes_mean=3e6),
        client=ClientFigures(latency_mean_s=3.7e-3, cpu_busy_ratio=0.4),
    )


def clocks() -> MetricsSnapshot:
    base = healthy()
    assert base.gpu is not None
    gpu = replace(base.gpu, sm_clock_ratio=0.7, clock_events=MappingProxyType({ClockEvent.SW_POWER_CAP: 0.9}))
    return replace(base, gpu=gpu)


def interference() -> MetricsSnapshot:
    base = healthy()
    assert base.gpu is not None
    return replace(base, gpu=replace(base.gpu, other_processes=1), probes=probes(interference=around(1.4)))


def cpu_starved() -> MetricsSnapshot:
    host = HostFigures(
        cpu_count=0.5, loop_lag_p99_s=60e-3, throttled_period_ratio=0.4, throttled_time_ratio=0.25, steal_ratio=0.0
    )
    return healthy(requests=requests({Stage.PARSE: 0.2e-3, Stage.DISPATCH: 0.5e-3}), host=host)


def cold_start() -> MetricsSnapshot:
    base = healthy()
    batches = base.buckets[0].batches
    cold = Durations(40, 8.0)
    use = replace(base.buckets[0], compute=Durations(batches, (batches - 40) * cost_s(8) + 8.0), cold=cold)
    return replace(
        base,
        requests=requests({Stage.COMPUTE: 667e-6}),
        buckets=(use,),
        stations=MappingProxyType(stations(device=0.84)),
    )


def bursty_arrivals() -> MetricsSnapshot:
    log = tuple(Arrival(burst * 9.6e-3 + index * 1e-6, 1) for burst in range(30) for index in range(96))
    slow = requests({Stage.BACKLOG: 1.2e-3})
    return healthy(
        requests=replace(slow, duration=replace(slow.duration, p99_s=5e-3)),
        arrivals=ArrivalFigures(rows_per_s=10_000.0, gap_cv2=90.0, log=log),
    )


def invalid_measurement() -> MetricsSnapshot:
    """A healthy-looking overload of which N and X * R disagree."""
    spoilt = overload()
    return replace(spoilt, requests=replace(spoilt.requests, in_flight_mean=20.0))


FAULTS: Mapping[Kind, Callable[[], MetricsSnapshot]] = {
    Kind.OVERLOAD: overload,
    Kind.BATCH_FORMATION_DELAY: batch_formation_delay,
    Kind.BATCH_TOO_SMALL: batch_too_small,
    Kind.CPU_PREPROCESS: cpu_preprocess,
    Kind.COPY_BANDWIDTH: copy_bandwidth,
    Kind.PAGEABLE_OR_ALLOCATING: pageable_or_allocating,
    Kind.LAUNCH_BOUND: launch_bound,
    Kind.GRAPH_MISS: graph_miss,
    Kind.NOT_CAPTURABLE: not_capturable,
    Kind.COMPUTE_BOUND: compute_bound,
    Kind.MEMORY_BOUND: memory_bound,
    Kind.INEFFICIENT_LAYERS: inefficient_layers,
    Kind.GPU_IDLE_GAPS: gpu_idle_gaps,
    Kind.LANE_COUNT: lane_count,
    Kind.PADDING_WASTE: padding_waste,
    Kind.WRONG_PROFILE: wrong_profile,
    Kind.SHAPE_SWITCHING: shape_switching,
    Kind.PYTHON_BOUND: python_bound,
    Kind.CLIENT_LIMITED: client_limited,
    Kind.NETWORK_PAYLOAD: network_payload,
    Kind.CLOCKS: clocks,
    Kind.INTERFERENCE: interference,
    Kind.CPU_STARVED: cpu_starved,
    Kind.COLD_START: cold_start,
    Kind.BURSTY_ARRIVALS: bursty_arrivals,
    Kind.INVALID_MEASUREMENT: invalid_measurement,
}
"""One per class, in the order of the taxonomy."""

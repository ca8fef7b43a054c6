"""Figures that several rules need, derived from a snapshot alone."""

from __future__ import annotations

from service.buckets import Bucket, Form
from service.diagnosis.queueing import AffineCost, affine_cost
from service.diagnosis.replay import ReplayPolicy, Upstream
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station

TENSORRT = "tensorrt"

LATE_LOOP_S = 0.01
"""Lateness of the event loop, 99th percentile, above which the server is held up, by itself or by others (taxonomy
class 18)."""

MUCH_LOOP_WAIT = 0.25
"""Share of the latency spent waiting for the event loop from which on a late one holds the server up."""

MIN_REPLAYED = 200
"""Arrivals below which a replay says nothing of a 99th percentile."""


def is_on_gpu(snapshot: MetricsSnapshot) -> bool:
    """Whether the model runs on a GPU; else there are no graphs, copies and clocks to speak of."""
    return snapshot.model.backend == TENSORRT


MUCH_OF_A_CORE = 0.7
"""Share of its cores that a pool with work for all of its threads gets unless others take them."""


NEVER_IDLE = 0.85
"""Share of the time in which the event loop works or waits for a core, from which on it has no time left for more."""


def is_loop_never_idle(snapshot: MetricsSnapshot) -> bool:
    """Whether the event loop works or waits for a core nearly all the time: then it serves as much as it can."""
    loop, wait = snapshot.stations.get(Station.EVENT_LOOP), snapshot.host.loop_wait_ratio
    if loop is None or wait is None or snapshot.window.duration_s <= 0:
        return False
    return loop.busy_s / loop.servers / snapshot.window.duration_s + wait >= NEVER_IDLE


def is_held_up(snapshot: MetricsSnapshot) -> bool:
    """Whether the event loop surely runs late, and requests wait for it much longer than it works on them."""
    loop, latency_s = snapshot.stations.get(Station.EVENT_LOOP), snapshot.latency_s
    if (snapshot.host.loop_lag_p99_s or 0.0) <= LATE_LOOP_S or not latency_s or loop is None:
        return False
    worked_s = loop.busy_s / max(loop.rows, snapshot.requests.rows) * rows_per_request(snapshot)
    stages = (Stage.PARSE, Stage.DISPATCH, Stage.COMPLETE, Stage.RENDER)
    return sum(snapshot.stage_s(stage) or 0.0 for stage in stages) - worked_s > MUCH_LOOP_WAIT * latency_s


def is_pool_kept_from_cores(snapshot: MetricsSnapshot) -> bool:
    """Whether all threads of the pool have work all the time, and get no core for much of it.

    By Little's law requests per second times the time in `prepare` are in the pool; with as many as it has threads it
    takes no more, however little CPU time it counts.
    """
    pool, prepare_s = snapshot.stations.get(Station.THREAD_POOL), snapshot.stage_s(Stage.PREPARE)
    if pool is None or prepare_s is None or snapshot.window.duration_s <= 0:
        return False
    in_pool = snapshot.requests_per_s * prepare_s
    return in_pool >= pool.servers and pool.busy_s / snapshot.window.duration_s < MUCH_OF_A_CORE * pool.servers


def device_time_s(snapshot: MetricsSnapshot) -> float | None:
    """Seconds that all batches together took on the device; None if a bucket's were not recorded, or nothing ran."""
    times = [use.batches * cost_s for use in snapshot.buckets if (cost_s := snapshot.cost_of(use)) is not None]
    return sum(times) if times and len(times) == len(snapshot.buckets) else None


def batch_count(snapshot: MetricsSnapshot) -> int:
    """Batches that ran."""
    return sum(use.batches for use in snapshot.buckets)


def rows_per_batch(snapshot: MetricsSnapshot) -> float | None:
    """Mean rows of a batch, padding not counted; None if none ran."""
    batches = batch_count(snapshot)
    return sum(use.rows for use in snapshot.buckets) / batches if batches else None


def rows_per_request(snapshot: MetricsSnapshot) -> float:
    """Mean rows of an answered request; 1 if none was."""
    count = snapshot.requests.duration.count
    return snapshot.requests.rows / count if count and snapshot.requests.rows else 1.0


def refused_share(snapshot: MetricsSnapshot) -> float:
    """Share of the requests that were refused for overload, or whose time ran out in the queue."""
    lost = sum(snapshot.requests.failures.get(reason, 0) for reason in ("overloaded", "timeout"))
    return lost / max(1, lost + snapshot.requests.duration.count)


def waiting_share(snapshot: MetricsSnapshot) -> float | None:
    """Share of the latency spent waiting for a lane with room."""
    return snapshot.stage_share(Stage.BACKLOG)


def slowness_in_traffic(snapshot: MetricsSnapshot) -> float:
    """The device's busy time over what the cost table says of the same batches; 1 where it does not know them all."""
    figures = snapshot.stations.get(Station.DEVICE)
    costs_s = [use.batches * snapshot.costs_s[use.bucket] for use in snapshot.buckets if use.bucket in snapshot.costs_s]
    if figures is None or len(costs_s) != len(snapshot.buckets) or sum(costs_s) <= 0:
        return 1.0
    return figures.busy_s / sum(costs_s)


def costs_of_main_form(snapshot: MetricsSnapshot) -> dict[Bucket, float]:
    """The cost table of the form that most rows came in: no batch mixes forms, and arrivals do not tell theirs."""
    rows = dict.fromkeys(Form, 0)
    for use in snapshot.buckets:
        rows[use.bucket.form] += use.rows
    main = max(Form, key=lambda form: rows[form])
    return {bucket: cost_s for bucket, cost_s in snapshot.costs_s.items() if bucket.form is main}


def present_policy(snapshot: MetricsSnapshot) -> ReplayPolicy | None:
    """The server as a replay knows it; None without a cost table.

    Lanes of one GPU share it: n of them slow each other down by what the ceilings of one and of n tell (probe P4), or
    n times where nobody measured. On a CPU batches are as much slower, or quicker, as they were in traffic than when
    they were timed.
    """
    costs_s = costs_of_main_form(snapshot)
    if not costs_s:
        return None
    lanes = snapshot.device.lanes if snapshot.device else 1
    rates = snapshot.probes.lane_rates
    if not is_on_gpu(snapshot):
        slowdown = slowness_in_traffic(snapshot)
    elif lanes in rates and 1 in rates:
        slowdown = max(1.0, lanes * rates[1].value / rates[lanes].value)
    else:
        servers = snapshot.stations[Station.DEVICE].servers if Station.DEVICE in snapshot.stations else 1
        slowdown = max(1.0, lanes / servers)
    return ReplayPolicy(
        costs_s=costs_s,
        lanes=lanes,
        max_delay_s=snapshot.model.max_queue_delay_s,
        lane_slowdown=slowdown,
        upstream=tuple(
            Upstream(figures.busy_s / max(figures.rows, snapshot.requests.rows), figures.servers)
            for station in (Station.EVENT_LOOP, Station.THREAD_POOL, Station.ENGINE_LOOP)
            if (figures := snapshot.stations.get(station)) and figures.rows
        ),
    )


def effective_cost(snapshot: MetricsSnapshot) -> AffineCost | None:
    """The line through the costs of batches as the lanes together run them; None where shapes differ, or of one size.

    Lanes side by side serve as one that is so many times as fast, less what they slow each other.
    """
    policy = present_policy(snapshot)
    dims = {use.bucket.dims for use in snapshot.buckets}
    if policy is None or len(dims) != 1:
        return None
    cost = affine_cost(policy.costs_s, next(iter(dims)))
    return None if cost is None else cost.scaled(policy.lane_slowdown / policy.lanes)

"""Operational laws over stations: who is how busy, who limits, and what no server can exceed.

The laws hold for whatever was measured, without assumptions on distributions (Denning and Buzen, "The operational
analysis of queueing network models", 1978):

    utilisation law  U = X * D        with D = busy time / completions / servers
    Little's law     N = X * R
    limits           X <= min(1 / D_max, N / (D + Z)),  R >= max(D, N * D_max - Z)

Batching bends one of them: a device that runs whatever waits is busy nearly all the time long before its limit, with
small batches. Its utilisation is no measure of its load. So a station has a *capacity* besides, the rate it would
reach with the best batches, and its *load* is X over that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from service.buckets import DimSizes, Form
from service.diagnosis.observed import is_on_gpu, slowness_in_traffic
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station, StationFigures
from service.telemetry.snapshot_probes import Interval

SATURATED_LOAD = 0.7
"""From this load on a station limits; below it waiting is short (taxonomy: "all U < 0.7" is no limit of the server)."""

LITTLE_TOLERANCE = 0.10
"""By how much N may differ from X * R before one of them is measured wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StationLoad:
    """One station's place in the laws.

    Attributes:
        station: which.
        demand_s: D, busy seconds per server for each answered row, with the batches as they were. Of a station that
            only some rows visit it is the mean over all; of one that other models use too, over their rows as well.
        service_s: the same over all servers together.
        utilisation: U, share of the window in which a server was busy.
        capacity_rows_per_s: the rate it would reach, for the device with the best batches.
        load: share of that capacity which is used; at most the utilisation.
        is_load_exact: whether the capacity is known; else, of a device without a cost table, it may be larger.
        within: the station whose time holds this one's too; None for a resource of its own.
    """

    station: Station
    demand_s: float
    service_s: float
    utilisation: float
    capacity_rows_per_s: float
    load: float
    is_load_exact: bool
    within: Station | None

    @property
    def is_doubtful(self) -> bool:
        """Whether nobody can tell if it limits: it was busy, perhaps with batches smaller than it could run."""
        return not self.is_load_exact and self.load >= SATURATED_LOAD


def station_loads(snapshot: MetricsSnapshot) -> tuple[StationLoad, ...]:
    """Every station that served a row in the window, in the order of `Station`."""
    return tuple(
        _station_load(snapshot, station, figures)
        for station in Station
        if (figures := snapshot.stations.get(station)) and figures.rows and figures.busy_s > 0
    )


def load_of(loads: Sequence[StationLoad], station: Station) -> StationLoad | None:
    """That station's, or None."""
    return next((load for load in loads if load.station is station), None)


def limiter(loads: Sequence[StationLoad]) -> StationLoad | None:
    """The resource that would limit throughput first: the one with the least capacity. None without any."""
    return min(resources(loads), key=lambda load: load.capacity_rows_per_s, default=None)


def resources(loads: Sequence[StationLoad]) -> tuple[StationLoad, ...]:
    """The stations that are not part of another."""
    return tuple(load for load in loads if load.within is None)


def is_device_saturated(loads: Sequence[StationLoad]) -> bool:
    """Whether the device is surely the limiter, and loaded enough to limit."""
    first = limiter(loads)
    return (
        first is not None and first.station is Station.DEVICE and first.load >= SATURATED_LOAD and not first.is_doubtful
    )


def little_error(snapshot: MetricsSnapshot) -> float | None:
    """Relative difference between N and X * R; None where one of them was not recorded."""
    in_flight, latency_s = snapshot.requests.in_flight_mean, snapshot.latency_s
    if not in_flight or latency_s is None:
        return None
    return abs(in_flight - snapshot.requests_per_s * latency_s) / in_flight


def unqueued_latency_s(snapshot: MetricsSnapshot) -> float | None:
    """The mean time of a request less all waiting for a batch or a lane: R without queueing."""
    waits = [snapshot.stage_s(stage) for stage in (Stage.FORMATION, Stage.BACKLOG)]
    latency_s = snapshot.latency_s
    if latency_s is None or any(wait is None for wait in waits):
        return None
    return latency_s - sum(wait for wait in waits if wait is not None)


def knee_requests(snapshot: MetricsSnapshot, loads: Sequence[StationLoad]) -> float | None:
    """N*, the requests in flight beyond which throughput grows no more: X_max * (R without queueing + Z).

    Sums of demands per row would be too short here: a request waits for its whole batch, not for its share of it.
    """
    first, latency_s = limiter(loads), unqueued_latency_s(snapshot)
    if first is None or latency_s is None or not snapshot.requests.rows:
        return None
    rows_per_request = snapshot.requests.rows / snapshot.requests.duration.count
    think_s = snapshot.client.think_s if snapshot.client else 0.0
    return first.capacity_rows_per_s / rows_per_request * (latency_s + think_s)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between what throughput (per second) and response time (seconds) of a closed system must lie."""

    throughput_low: float
    throughput_high: float
    response_low_s: float
    response_high_s: float


def asymptotic_bounds(demands_s: Sequence[float], customers: float, think_s: float = 0.0) -> Bounds:
    """What holds whatever the distributions: no queueing at best, waiting for all others at worst.

    Args:
        demands_s: service demand of each station, in seconds per request; not empty, some are positive.
        customers: N, requests and thinkers together; at least 1.
        think_s: Z, the pause of a customer between two requests.
    """
    total_s, largest_s = sum(demands_s), max(demands_s)
    return Bounds(
        throughput_low=customers / (customers * total_s + think_s),
        throughput_high=min(1.0 / largest_s, customers / (total_s + think_s)),
        response_low_s=max(total_s, customers * largest_s - think_s),
        response_high_s=customers * total_s,
    )


def balanced_bounds(demands_s: Sequence[float], customers: float, think_s: float = 0.0) -> Bounds:
    """Tighter ones for systems whose service is about exponential (separable networks): balanced job bounds.

    Source: Zahorjan, Sevcik, Eager, Galler, "Balanced job bound analysis of queueing networks", 1982. Arguments as of
    `asymptotic_bounds`.
    """
    total_s, largest_s = sum(demands_s), max(demands_s)
    mean_s = total_s / len(demands_s)
    others = customers - 1.0
    slow_s = others * largest_s / (1.0 + think_s / (customers * total_s))
    quick_s = others * mean_s / (1.0 + think_s / total_s)
    return Bounds(
        throughput_low=customers / (total_s + think_s + slow_s),
        throughput_high=min(1.0 / largest_s, customers / (total_s + think_s + quick_s)),
        response_low_s=max(customers * largest_s - think_s, total_s + quick_s),
        response_high_s=total_s + slow_s,
    )


def throughput_at(snapshot: MetricsSnapshot, loads: Sequence[StationLoad], in_flight: float) -> Interval | None:
    """Rows per second that the server would make with this many requests in flight; None without data.

    Between the balanced bounds, at most the asymptotic one. The lower end has the device run batches as it does now,
    the others let it run the best ones.

    Args:
        snapshot: the window.
        loads: its stations.
        in_flight: at least 1.
    """
    latency_s, own = unqueued_latency_s(snapshot), resources(loads)
    if latency_s is None or not own or not snapshot.requests.rows:
        return None
    rows = snapshot.requests.rows / snapshot.requests.duration.count
    think_s = snapshot.client.think_s if snapshot.client else 0.0

    def bounds(demands_s: Sequence[float]) -> tuple[Bounds, Bounds]:
        # What is no demand of a station takes its time without anybody queueing for it, as thinking does.
        pause_s = max(0.0, latency_s - sum(demands_s)) + think_s
        return asymptotic_bounds(demands_s, in_flight, pause_s), balanced_bounds(demands_s, in_flight, pause_s)

    widest, best = bounds([rows / load.capacity_rows_per_s for load in own])
    _, now = bounds([rows * load.demand_s for load in own])
    return Interval(best.throughput_high, min(now.throughput_low, best.throughput_low), widest.throughput_high).scaled(
        rows
    )


def _station_load(snapshot: MetricsSnapshot, station: Station, figures: StationFigures) -> StationLoad:
    service_s = figures.busy_s / max(figures.rows, snapshot.requests.rows)
    demand_s = service_s / figures.servers
    utilisation = figures.busy_s / snapshot.window.duration_s / figures.servers
    best = best_rows_per_s(snapshot) if station is Station.DEVICE else None
    capacity = max(1.0 / demand_s, best or 0.0)
    return StationLoad(
        station=station,
        demand_s=demand_s,
        service_s=service_s,
        utilisation=utilisation,
        capacity_rows_per_s=capacity,
        load=utilisation / (capacity * demand_s),
        is_load_exact=station is not Station.DEVICE or best is not None,
        within=figures.within,
    )


def best_rows_per_s(snapshot: MetricsSnapshot) -> float | None:
    """What the device does with the batches that suit it best, for the mix of shapes that was seen.

    Of a GPU as probe P4 measured it, with the lanes that there are. Else by the cost table, times the servers, and as
    much slower as batches were in traffic than when they were timed: on a CPU the server itself takes cores from them.
    None without either.
    """
    rates = snapshot.probes.lane_rates
    lanes = snapshot.device.lanes if snapshot.device else None
    measured = rates.get(lanes) if lanes is not None else None
    if measured and is_on_gpu(snapshot) and not snapshot.model.dim_names:
        return measured.value
    row_cost_s = _best_row_cost_s(snapshot)
    if row_cost_s is None:
        return None
    if measured and is_on_gpu(snapshot) and 1 in rates:
        return measured.value / rates[1].value / row_cost_s
    figures = snapshot.stations.get(Station.DEVICE)
    return (figures.servers if figures else 1) / row_cost_s / slowness_in_traffic(snapshot)


def _best_row_cost_s(snapshot: MetricsSnapshot) -> float | None:
    """Least seconds per row that any batch size reaches, averaged over the rows' own padded dims."""
    rows: defaultdict[tuple[DimSizes, Form], int] = defaultdict(int)
    for use in snapshot.buckets:
        rows[use.bucket.dims, use.bucket.form] += use.rows
    least_s: dict[tuple[DimSizes, Form], float] = {}
    for bucket, cost_s in snapshot.costs_s.items():
        home = (bucket.dims, bucket.form)
        least_s[home] = min(least_s.get(home, cost_s), cost_s / bucket.padded_size)
    total = sum(rows.values())
    if not total or any(home not in least_s for home in rows):
        return None
    return sum(count * least_s[home] for home, count in rows.items()) / total

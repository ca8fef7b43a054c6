"""From the moments of a window to the snapshot that a diagnosis reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from service.telemetry.history import Span
from service.telemetry.host_counters import HostCounters
from service.telemetry.quiet import experiment_share
from service.telemetry.snapshot import MetricsSnapshot, Window
from service.telemetry.snapshot_device import LayerProfile
from service.telemetry.snapshot_load import ClientFigures, HostFigures, Station, StationFigures
from service.telemetry.snapshot_probes import ProbeFigures
from service.telemetry.window_device import (
    bucket_uses,
    device_figures,
    gpu_window,
    is_on_device,
    lane_stage_ns,
    timed_ns,
)
from service.telemetry.window_load import (
    arrival_figures,
    ends,
    facts_between,
    queue_figures,
    request_figures,
)
from service.telemetry.window_loops import lag_mean_s, lag_p99_s, loop_stations, loop_wait_ratio, speaking_loop
from service.units import NS_PER_MS, NS_PER_S

INTERPRETER_TURN_NS = NS_PER_MS
"""What a thread is taken to do with the interpreter each time it gets it: the share of its time spent waiting for it is
the wait over the wait and this."""

MUCH_PRESSURE, MUCH_STOLEN = 0.2, 0.05
"""Shares from which on a machine is too crowded for the wait for the interpreter to be told from that for a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a window itself does not tell.

    Attributes:
        pool_threads: threads that decode, preprocess and tokenize.
        cpu_count: cores that affinity and quota leave to the process.
        layers: of the model's buckets, as far as they were profiled.
        probes: what experiments told.
        client: what a load generator told of itself.
    """

    pool_threads: int
    cpu_count: float
    layers: tuple[LayerProfile, ...] = ()
    probes: ProbeFigures = field(default_factory=ProbeFigures)
    client: ClientFigures | None = None


def take_snapshot(span: Span, surroundings: Surroundings) -> MetricsSnapshot:
    """One model during one window.

    Args:
        span: the window.
        surroundings: what is known beside it.
    """
    source = ends(span)[1].source
    first, last = span.first, span.last
    return MetricsSnapshot(
        window=Window(
            began_unix_s=first.unix_ns / NS_PER_S,
            duration_s=span.duration_s,
            wall_duration_s=(last.unix_ns - first.unix_ns) / NS_PER_S,
            ready_before_s=(first.at_ns - source.ready_ns) / NS_PER_S,
            experiment_share=experiment_share(first, last),
        ),
        model=source.facts,
        requests=request_figures(span),
        stations=stations(span, surroundings.pool_threads),
        buckets=bucket_uses(span),
        costs_s=source.costs_s,
        queue=queue_figures(span),
        arrivals=arrival_figures(span),
        device=device_figures(span),
        gpu=gpu_window(span),
        layers=surroundings.layers,
        host=host_figures(span, surroundings.cpu_count),
        client=surroundings.client,
        probes=surroundings.probes,
    )


def stations(span: Span, pool_threads: int) -> Mapping[Station, StationFigures]:
    """Who was busy how long; a station that did nothing is absent.

    On the CPU the lanes' threads copy and compute by
    turns, so copies lie within the device there.
    """
    first, last = ends(span)
    before, after = first.figures, last.figures
    rows, batch_rows = after.requests.rows - before.requests.rows, _batch_rows(span)
    loops = loop_stations(span)
    scheduler = Station.ENGINE_LOOP if Station.ENGINE_LOOP in loops else Station.EVENT_LOOP
    pool_rows = last.marks.pool_rows - first.marks.pool_rows
    encode_ns = facts_between(before.requests, after.requests).encode
    found = {
        **loops,
        Station.THREAD_POOL: _station(last.marks.pool_ns - first.marks.pool_ns, pool_rows, pool_threads),
        Station.BATCHER: _station(last.marks.batcher_ns - first.marks.batcher_ns, batch_rows, within=scheduler),
        **_lane_stations(span, batch_rows),
        Station.ENCODE: _station(encode_ns, rows, within=Station.EVENT_LOOP),
    }
    return MappingProxyType(
        {
            station: figures
            for station in Station
            if (figures := found.get(station)) is not None and figures.rows and figures.busy_s > 0
        }
    )


def _lane_stations(span: Span, rows: int) -> dict[Station, StationFigures]:
    first, last = ends(span)
    before, after = first.figures.batches, last.figures.batches
    if is_on_device(span):
        return {
            Station.H2D: _station(timed_ns(span, "h2d"), rows),
            Station.DEVICE: _station(after.computing.busy_ns - before.computing.busy_ns, rows),
            Station.D2H: _station(timed_ns(span, "d2h"), rows),
        }
    lanes = last.source.lanes
    return {
        Station.H2D: _station(lane_stage_ns(span, "h2d"), rows, lanes, within=Station.DEVICE),
        Station.DEVICE: _station(after.busy_ns - before.busy_ns, rows, lanes),
        Station.D2H: _station(lane_stage_ns(span, "d2h"), rows, lanes, within=Station.DEVICE),
    }


def _batch_rows(span: Span) -> int:
    first, last = ends(span)
    return int(last.figures.batches.bucket_rows.sum() - first.figures.batches.bucket_rows.sum())


def _station(busy_ns: int, rows: int, servers: int = 1, within: Station | None = None) -> StationFigures:
    return StationFigures(busy_ns / NS_PER_S, rows, servers, within)


def host_figures(span: Span, cpu_count: float) -> HostFigures:
    """What kept the process from its cores, and its threads from the interpreter."""
    loop = speaking_loop(span)
    known = HostFigures(
        cpu_count=cpu_count,
        frontends=len(span.last.front_ends),
        loop_lag_p99_s=lag_p99_s(loop),
        loop_lag_mean_s=lag_mean_s(loop),
        loop_wait_ratio=loop_wait_ratio(span),
    )
    before, after = span.first.host, span.last.host
    if before is None or after is None or after.at_ns <= before.at_ns:
        return known
    elapsed_ns = after.at_ns - before.at_ns
    pressure = _ratio(_grown(before, after, "pressure_ns"), elapsed_ns)
    stolen = _ratio(_grown(before, after, "stolen_ticks"), _grown(before, after, "all_ticks"))
    periods = _ratio(_grown(before, after, "throttled_periods"), _grown(before, after, "periods"))
    return replace(
        known,
        gil_wait_ratio=None if _is_crowded(pressure, stolen) else _interpreter_wait(before, after),
        throttled_period_ratio=periods,
        throttled_time_ratio=_held_back(_grown(before, after, "throttled_ns"), elapsed_ns, periods),
        steal_ratio=stolen,
        pressure_ratio=pressure,
        nic_bytes_per_s=after.nic_bytes_per_s,
        nic_used_bytes_per_s=_per_s(_grown(before, after, "nic_bytes"), elapsed_ns),
    )


def _is_crowded(pressure: float | None, stolen: float | None) -> bool:
    """Whether threads wait for processors: whoever holds the interpreter's lock is then kept from giving it back."""
    return (pressure or 0.0) > MUCH_PRESSURE or (stolen or 0.0) > MUCH_STOLEN


def _grown(before: HostCounters, after: HostCounters, name: str) -> int | None:
    early, late = getattr(before, name), getattr(after, name)
    return None if early is None or late is None else late - early


def _ratio(part: int | None, whole: int | None) -> float | None:
    """Nothing of nothing is 0: a group without a quota has no periods, and is not held back."""
    if part is None or whole is None:
        return None
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def _per_s(grown: int | None, elapsed_ns: int) -> float | None:
    """Interfaces come and go: one that went takes its bytes along, and then nothing is known."""
    return None if grown is None or grown < 0 else grown / elapsed_ns * NS_PER_S


def _held_back(throttled_ns: int | None, elapsed_ns: int, periods: float | None) -> float | None:
    """The counter adds up processors, so it may exceed the window; no more can be than in the periods concerned."""
    share = _ratio(throttled_ns, elapsed_ns)
    return None if share is None or periods is None else min(share, periods)


def _interpreter_wait(before: HostCounters, after: HostCounters) -> float | None:
    waits, waited_ns = _grown(before, after, "interpreter_waits"), _grown(before, after, "interpreter_wait_ns")
    if not waits or waited_ns is None:
        return None
    return waited_ns / (waited_ns + waits * INTERPRETER_TURN_NS)

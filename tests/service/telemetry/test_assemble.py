"""Stations and host of a window, and the snapshot as a whole."""

from __future__ import annotations

import pytest

from service.requests import DeviceTimings, RequestFacts
from service.telemetry.assemble import Surroundings, host_figures, stations, take_snapshot
from service.telemetry.host_counters import HostCounters
from service.telemetry.snapshot_load import Station
from service.units import NS_PER_MS, NS_PER_S
from tests.doubles.watched_model import WatchedServer

DEVICE = DeviceTimings(h2d=2 * NS_PER_MS, wait=0, d2h=3 * NS_PER_MS, enqueue=NS_PER_MS)


def busy(server: WatchedServer, **model):
    """One second in which each station did something."""
    watched = server.add(**model)
    other = server.add(name="other")
    server.pass_seconds(1)
    server.cpu_s += 0.5
    watched.answer(10.5, rows=3, facts=RequestFacts(encode=20 * NS_PER_MS))
    other.answer(10.6, rows=7)
    device = DEVICE if model.get("backend") == "tensorrt" else None
    watched.run_batch(10.5, rows=3, device=device)
    watched.run_batch(10.52, rows=4, lane=1, device=device)
    watched.activity.batcher_ns += 5 * NS_PER_MS
    watched.activity.pool_ns += 200 * NS_PER_MS
    watched.activity.pool_rows += 3
    server.pass_seconds(1)
    return {
        station: (pytest.approx(figures.busy_s), figures.rows, figures.servers, figures.within)
        for station, figures in stations(server.history.span("m", 60.0), 8).items()
    }


def test_behind_front_ends_the_engine_schedules_and_the_busiest_of_them_speaks():
    server = WatchedServer()
    idle, full = (server.front_ends.begin(index, restarts=0) for index in range(2))
    server.front_ends.count(full, 5 * NS_PER_S, [9 * NS_PER_S], held_bytes=0)

    def work(life: int, cpu_s: float, lag_ms: int) -> None:
        server.front_ends.count(life, int(cpu_s * NS_PER_S), [lag_ms * NS_PER_MS] * 100, held_bytes=0)

    watched = server.add()
    server.pass_seconds(1)
    server.cpu_s += 0.5
    work(idle, 0.1, 1)
    work(full, 0.8, 40)
    watched.answer(10.5, rows=3)
    watched.run_batch(10.5, rows=3)
    watched.activity.batcher_ns += 5 * NS_PER_MS
    server.pass_seconds(1)
    span = server.history.span("m", 60.0)
    found = stations(span, 8)
    assert (found[Station.EVENT_LOOP].busy_s, found[Station.EVENT_LOOP].servers) == (pytest.approx(1.6), 2)
    assert (found[Station.ENGINE_LOOP].busy_s, found[Station.ENGINE_LOOP].rows) == (pytest.approx(0.5), 3)
    assert found[Station.BATCHER].within is Station.ENGINE_LOOP
    host = host_figures(span, 4.0)
    assert (host.frontends, host.loop_lag_mean_s) == (2, pytest.approx(0.04))
    server.front_ends.end(full)
    replaced = server.front_ends.begin(1, restarts=1)
    work(replaced, 0.6, 2)
    server.pass_seconds(1)
    found = stations(server.history.span("m", 60.0), 8)
    assert found[Station.EVENT_LOOP].busy_s == pytest.approx(1.2), "one that is gone says nothing, its successor does"


def test_the_wait_of_the_only_loop_for_a_core():
    server = WatchedServer()
    server.add()
    server.pass_seconds(1)
    server.delay_s = 3.0
    server.pass_seconds(1)
    assert host_figures(server.history.span("m", 60.0), 4.0).loop_wait_ratio is None, "not known at first"
    server.delay_s += 0.25
    server.pass_seconds(1)
    assert host_figures(server.history.span("m", 2.0), 4.0).loop_wait_ratio == pytest.approx(0.125)
    server.front_ends.begin(0, restarts=0)
    assert host_figures(server.history.span("m", 2.0), 4.0).loop_wait_ratio is None, "it is not they that wait"


def test_stations_on_the_cpu_where_lanes_copy_and_compute_by_turns():
    assert busy(WatchedServer(), lanes=2) == {
        Station.EVENT_LOOP: (0.5, 10, 1, None),
        Station.THREAD_POOL: (0.2, 3, 8, None),
        Station.BATCHER: (0.005, 7, 1, Station.EVENT_LOOP),
        Station.H2D: (0.012, 7, 2, Station.DEVICE),
        Station.DEVICE: (0.168, 7, 2, None),
        Station.D2H: (0.016, 7, 2, Station.DEVICE),
        Station.ENCODE: (0.02, 3, 1, Station.EVENT_LOOP),
    }


def test_stations_on_a_gpu_which_lanes_share_and_whose_copies_are_timed_by_itself():
    found = busy(WatchedServer(), lanes=2, backend="tensorrt")
    assert found[Station.DEVICE] == (0.09, 7, 1, None)
    assert found[Station.H2D] == (0.004, 7, 1, None)
    assert found[Station.D2H] == (0.006, 7, 1, None)


def test_stations_that_did_nothing_are_absent():
    server = WatchedServer()
    server.add()
    server.pass_seconds(2)
    assert dict(stations(server.history.span("m", 60.0), 8)) == {}


def counters(at_s: float, **grown) -> HostCounters:
    fields = {
        "periods": 10,
        "throttled_periods": 1,
        "throttled_ns": 0,
        "stolen_ticks": 0,
        "all_ticks": 100,
        "pressure_ns": 0,
        "interpreter_waits": 0,
        "interpreter_wait_ns": 0,
        "nic_bytes": 0,
        "nic_bytes_per_s": 0,
    }
    return HostCounters(
        at_ns=int(at_s * NS_PER_S), **{name: value + grown.get(name, 0) for name, value in fields.items()}
    )


def host(before: HostCounters | None, after: HostCounters | None):
    server = WatchedServer()
    server.add()
    server.host = before
    server.pass_seconds(2)
    server.host = after
    return host_figures(server.history.span("m", 60.0), 4.0)


def test_the_host_by_differences():
    grown = counters(
        12.0,
        periods=20,
        throttled_periods=5,
        throttled_ns=3 * NS_PER_S,
        stolen_ticks=4,
        all_ticks=400,
        pressure_ns=NS_PER_S // 10,
        interpreter_waits=10,
        interpreter_wait_ns=10 * NS_PER_MS,
        nic_bytes=3000,
        nic_bytes_per_s=125_000_000,
    )
    found = host(counters(10.0), grown)
    assert found.throttled_period_ratio == 0.25
    assert found.throttled_time_ratio == 0.25
    assert found.steal_ratio == 0.01
    assert found.pressure_ratio == pytest.approx(0.05)
    assert found.gil_wait_ratio == pytest.approx(0.5)
    assert found.cpu_count == 4.0
    assert (found.nic_bytes_per_s, found.nic_used_bytes_per_s) == (125_000_000, 1500.0)


@pytest.mark.parametrize(("late", "used"), [(7000, 3000.0), (500, None)], ids=["used", "an interface went away"])
def test_what_the_network_interfaces_carried(late, used):
    early, then = (counters(at_s, nic_bytes=nic, nic_bytes_per_s=10**9) for at_s, nic in ((10.0, 1000), (12.0, late)))
    assert host(early, then).nic_used_bytes_per_s == used


def test_a_group_without_a_quota_is_not_held_back():
    found = host(counters(10.0), counters(12.0))
    assert (found.throttled_period_ratio, found.throttled_time_ratio) == (0.0, 0.0)


@pytest.mark.parametrize("crowd", [{"pressure_ns": NS_PER_S}, {"stolen_ticks": 10, "all_ticks": 100}])
def test_on_a_crowded_machine_the_wait_for_the_interpreter_is_not_told(crowd):
    waits = {"interpreter_waits": 10, "interpreter_wait_ns": 10 * NS_PER_MS}
    assert host(counters(10.0), counters(12.0, **waits)).gil_wait_ratio == pytest.approx(0.5)
    assert host(counters(10.0), counters(12.0, **waits, **crowd)).gil_wait_ratio is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (None, counters(12.0)),
        (counters(12.0), counters(12.0)),
        (HostCounters(at_ns=0), HostCounters(at_ns=9)),
    ],
)
def test_what_is_not_counted_is_not_told(before, after):
    found = host(before, after)
    told = (found.throttled_period_ratio, found.steal_ratio, found.pressure_ratio, found.gil_wait_ratio)
    assert told == (None,) * 4
    assert found.throttled_time_ratio is None


def test_lateness_of_the_event_loop_in_the_window():
    server = WatchedServer()
    server.add()
    server.recorder.record_loop_lag(9 * NS_PER_S)
    server.pass_seconds(1)
    for _ in range(100):
        server.recorder.record_loop_lag(NS_PER_MS)
    server.pass_seconds(1)
    found = host_figures(server.history.span("m", 60.0), 4.0)
    assert found.loop_lag_p99_s == pytest.approx(0.001, rel=0.5)
    assert found.loop_lag_mean_s == pytest.approx(0.001)


def test_the_whole_snapshot():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(4)
    model.answer(13.5)
    server.wall_offset_s += 5.0
    snapshot = take_snapshot(server.history.span("m", 60.0), Surroundings(pool_threads=2, cpu_count=2.0))
    assert snapshot.window.duration_s == 4.0
    assert snapshot.window.wall_duration_s == pytest.approx(9.0)
    assert snapshot.window.ready_before_s == 8.0
    assert snapshot.model is model.source.facts
    assert snapshot.costs_s is model.source.costs_s
    assert snapshot.requests_per_s == 0.25
    assert (snapshot.gpu, snapshot.client, snapshot.layers) == (None, None, ())

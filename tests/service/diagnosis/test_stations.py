"""The laws on figures that can be checked by hand, and on systems whose solution is known exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket
from service.diagnosis.stations import (
    asymptotic_bounds,
    balanced_bounds,
    best_rows_per_s,
    is_device_saturated,
    knee_requests,
    limiter,
    little_error,
    load_of,
    resources,
    station_loads,
    throughput_at,
    unqueued_latency_s,
)
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Durations, Stage, Station, StationFigures
from tests.doubles.faults import saturated
from tests.doubles.snapshots import (
    BATCH_SIZES,
    MODEL,
    REQUESTS,
    WINDOW_S,
    around,
    bare,
    bucket_use,
    cost_s,
    healthy,
    probes,
    stations,
)

DEMANDS = st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=6)


def by_station(snapshot: MetricsSnapshot) -> dict[Station, object]:
    return {load.station: load for load in station_loads(snapshot)}


def test_utilisation_is_throughput_times_demand():
    for load in station_loads(healthy()):
        assert load.utilisation == pytest.approx(10_000 * load.demand_s)


def test_servers_share_the_demand():
    pool = load_of(station_loads(healthy(stations=stations(thread_pool=0.5))), Station.THREAD_POOL)
    assert pool is not None
    assert pool.utilisation == pytest.approx(0.5)
    assert pool.service_s == pytest.approx(8 * pool.demand_s)
    assert pool.capacity_rows_per_s == pytest.approx(20_000)


def test_a_busy_device_with_small_batches_is_not_a_loaded_one():
    device = load_of(station_loads(healthy(stations=stations(device=0.97))), Station.DEVICE)
    assert device is not None
    assert device.utilisation == pytest.approx(0.97)
    assert device.load == pytest.approx(10_000 / 30_769, rel=1e-3)


def test_the_limiter_has_the_least_capacity():
    first = limiter(station_loads(healthy()))
    assert first is not None
    assert first.station is Station.EVENT_LOOP
    assert limiter(station_loads(saturated())).station is Station.DEVICE
    assert is_device_saturated(station_loads(saturated()))
    assert not is_device_saturated(station_loads(healthy()))


def test_a_station_that_only_some_rows_visit_counts_for_all():
    half = StationFigures(0.5 * WINDOW_S, REQUESTS // 2)
    (pool,) = station_loads(healthy(stations={Station.THREAD_POOL: half}))
    assert pool.capacity_rows_per_s == pytest.approx(20_000)
    assert pool.load == pool.utilisation == pytest.approx(0.5)


def test_a_station_that_other_models_use_too_is_as_loaded_as_they_make_it():
    shared = StationFigures(0.9 * WINDOW_S, 3 * REQUESTS)
    (loop,) = station_loads(healthy(stations={Station.EVENT_LOOP: shared}))
    assert loop.load == loop.utilisation == pytest.approx(0.9)
    assert loop.capacity_rows_per_s == pytest.approx(30_000 / 0.9)


def test_batches_that_are_slower_in_traffic_lower_what_a_cpu_could_do():
    model = replace(MODEL, backend="onnxruntime")
    table = healthy(model=model)
    assert best_rows_per_s(table) == pytest.approx(32 / cost_s(32))
    slow = replace(table, stations=stations(device=0.875))
    assert best_rows_per_s(slow) == pytest.approx(32 / cost_s(32) * 0.7 / 0.875)
    assert best_rows_per_s(replace(slow, stations={})) == pytest.approx(32 / cost_s(32))


def test_a_part_of_a_station_is_no_resource():
    loads = station_loads(healthy(stations=stations(encode=0.99)))
    assert Station.ENCODE not in {load.station for load in resources(loads)}
    assert load_of(loads, Station.ENCODE).within is Station.EVENT_LOOP


@pytest.mark.parametrize("figures", [StationFigures(0.0, 5), StationFigures(1.0, 0)])
def test_a_station_that_did_nothing_is_left_out(figures):
    snapshot = healthy(stations=MappingProxyType({Station.DEVICE: figures}))
    assert station_loads(snapshot) == ()
    assert limiter(()) is None


@pytest.mark.parametrize(
    ("changes", "rows_per_s"),
    [
        pytest.param({}, 30_769, id="measured by P4 with the present lanes"),
        pytest.param({"probes": probes(lane_rates=MappingProxyType({}))}, 32 / cost_s(32), id="cost table"),
        pytest.param({"probes": probes(lane_rates=MappingProxyType({})), "costs_s": {}}, None, id="neither"),
        pytest.param(
            {"probes": probes(lane_rates=MappingProxyType({})), "buckets": (bucket_use(Bucket(8, (5,)), 1, 1),)},
            None,
            id="shapes that were not timed",
        ),
    ],
)
def test_what_the_device_could_do(changes, rows_per_s):
    assert best_rows_per_s(healthy(**changes)) == (None if rows_per_s is None else pytest.approx(rows_per_s))


def test_shapes_count_by_their_rows():
    costs = MappingProxyType({Bucket(4, (10,)): 4e-3, Bucket(4, (20,)): 12e-3, Bucket(1, (20,)): 5e-3})
    buckets = (bucket_use(Bucket(4, (10,)), 25, 100), bucket_use(Bucket(1, (20,)), 300, 300))
    model = replace(MODEL, dim_names=("length",), dim_sizes=((10, 20),))
    snapshot = healthy(
        model=model,
        buckets=buckets,
        costs_s=costs,
        probes=probes(lane_rates=MappingProxyType({})),
        stations={Station.DEVICE: StationFigures(25 * 4e-3 + 300 * 5e-3, 400)},
    )
    assert best_rows_per_s(snapshot) == pytest.approx(1 / (0.25 * 1e-3 + 0.75 * 3e-3))
    lanes = probes(lane_rates=MappingProxyType({1: around(100), 2: around(150)}))
    assert best_rows_per_s(replace(snapshot, probes=lanes)) == pytest.approx(1.5 / (0.25 * 1e-3 + 0.75 * 3e-3))


def test_little():
    assert little_error(healthy()) == pytest.approx(0.0)
    off = healthy()
    off = replace(off, requests=replace(off.requests, in_flight_mean=30.0))
    assert little_error(off) == pytest.approx(0.5)
    assert little_error(bare()) is None


def test_the_knee_counts_the_latency_without_waiting():
    snapshot = healthy()
    assert unqueued_latency_s(snapshot) == pytest.approx(1.15e-3)
    assert knee_requests(snapshot, station_loads(snapshot)) == pytest.approx(1 / 45e-6 * 1.15e-3)
    assert unqueued_latency_s(bare()) is None
    assert knee_requests(bare(), ()) is None


def test_a_share_of_what_was_not_recorded_is_not_zero():
    snapshot = healthy()
    stages = {stage: one for stage, one in snapshot.requests.stages.items() if stage is not Stage.READ}
    snapshot = replace(snapshot, requests=replace(snapshot.requests, stages=stages))
    assert snapshot.stage_share(Stage.READ, Stage.SEND) is None
    assert snapshot.stage_share(Stage.SEND) == pytest.approx(0.1)
    assert Durations(0, 0.0).mean_s is None


@given(seed=st.integers(0, 10_000), servers=st.integers(1, 3), rate=st.floats(0.2, 3.0))
def test_the_laws_hold_on_any_trace(seed, servers, rate):
    """A queue run by hand: busy time, answers and time in the system are counted, never assumed."""
    rng = random.Random(seed)
    free, now, busy, total, ends = [0.0] * servers, 0.0, 0.0, 0.0, []
    count = 200
    for _ in range(count):
        now += rng.expovariate(rate)
        service = rng.uniform(0.1, 1.5)
        start = max(now, min(free))
        free[free.index(min(free))] = start + service
        busy, total = busy + service, total + start + service - now
        ends.append(start + service)
    duration = max(ends)
    snapshot = healthy(
        window=replace(healthy().window, duration_s=duration),
        requests=replace(
            healthy().requests,
            rows=count,
            duration=Durations(count, total),
            stages={},
            in_flight_mean=total / duration,
        ),
        stations={Station.H2D: StationFigures(busy, count, servers)},
        costs_s={},
        probes=probes(lane_rates={}),
    )
    (load,) = station_loads(snapshot)
    assert load.utilisation == pytest.approx(snapshot.rows_per_s * load.demand_s)
    assert load.utilisation <= 1.0 + 1e-9
    assert snapshot.rows_per_s <= load.capacity_rows_per_s * (1 + 1e-9)
    assert little_error(snapshot) == pytest.approx(0.0, abs=1e-9)


def mean_value_analysis(demands: Sequence[float], customers: int, think_s: float) -> tuple[float, float]:
    """Exact throughput and response time of a closed separable network (Reiser and Lavenberg)."""
    queued = [0.0] * len(demands)
    throughput = response = 0.0
    for number in range(1, customers + 1):
        times = [demand * (1.0 + length) for demand, length in zip(demands, queued, strict=True)]
        response = sum(times)
        throughput = number / (response + think_s)
        queued = [throughput * time for time in times]
    return throughput, response


@given(demands=DEMANDS, customers=st.integers(1, 40), think_s=st.floats(0.0, 5.0))
def test_bounds_hold_around_the_exact_solution(demands, customers, think_s):
    throughput, response = mean_value_analysis(demands, customers, think_s)
    for bounds in (asymptotic_bounds(demands, customers, think_s), balanced_bounds(demands, customers, think_s)):
        assert bounds.throughput_low <= throughput * (1 + 1e-9)
        assert throughput <= bounds.throughput_high * (1 + 1e-9)
        assert bounds.response_low_s <= response * (1 + 1e-9)


@given(demands=DEMANDS, customers=st.integers(1, 40))
def test_balanced_bounds_are_the_tighter_ones(demands, customers):
    wide, tight = asymptotic_bounds(demands, customers), balanced_bounds(demands, customers)
    assert tight.throughput_low >= wide.throughput_low * (1 - 1e-9)
    assert tight.throughput_high <= wide.throughput_high * (1 + 1e-9)
    assert tight.response_high_s <= wide.response_high_s * (1 + 1e-9)


def test_one_customer_meets_no_queue():
    bounds = balanced_bounds([0.2, 0.3], 1, 0.5)
    assert bounds.throughput_low == bounds.throughput_high == pytest.approx(1.0)
    assert bounds.response_low_s == bounds.response_high_s == pytest.approx(0.5)


def test_throughput_of_more_in_flight_lies_below_the_limiter():
    snapshot = healthy()
    loads = station_loads(snapshot)
    some, many = (throughput_at(snapshot, loads, number) for number in (5.0, 1000.0))
    assert some.low < some.value < some.high < 1 / 45e-6
    assert many.high == pytest.approx(1 / 45e-6)
    assert throughput_at(bare(), (), 5.0) is None


def test_the_double_is_what_its_docstring_says():
    snapshot = healthy()
    assert snapshot.latency_s == pytest.approx(1.5e-3)
    assert snapshot.requests.in_flight_mean == pytest.approx(15.0)
    assert set(snapshot.costs_s) == {Bucket(size) for size in BATCH_SIZES}

"""Gains: Amdahl's law, and the cap of the next station."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket, Form
from service.diagnosis.finding import Gain, GainLabel, GainMetric
from service.diagnosis.gains import (
    amdahl,
    at_most,
    device_gain,
    latency_gain,
    share_gain,
    throughput_gain,
    throughput_without,
)
from service.diagnosis.observed import effective_cost
from service.diagnosis.stations import limiter, station_loads
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval
from tests.doubles.faults import saturated
from tests.doubles.snapshots import BATCH_SIZES, bare, bucket_use, cost_s, healthy, requests, stations

LOADS = station_loads(healthy())
SHARES = st.floats(0.0, 1.0)


@pytest.mark.parametrize(
    ("share", "speed_up", "whole"), [(0.5, 2.0, 4 / 3), (0.0, 10.0, 1.0), (1.0, 3.0, 3.0), (0.9, 1e9, 10.0)]
)
def test_amdahl(share, speed_up, whole):
    assert amdahl(share, speed_up) == pytest.approx(whole)


@given(share=SHARES, speed_up=st.floats(1.0, 1e6))
def test_amdahl_never_passes_the_rest(share, speed_up):
    assert 1.0 <= amdahl(share, speed_up) <= speed_up * (1 + 1e-9)
    assert amdahl(share, speed_up) * (1.0 - share) <= 1.0 + 1e-9


def test_a_latency_gain_is_a_share_of_the_mean():
    gain = latency_gain(healthy(), Interval(0.3e-3, 0.15e-3, 0.6e-3), GainLabel.MEASURED)
    assert gain is not None
    assert (gain.metric, gain.value, gain.low, gain.high) == (
        GainMetric.LATENCY_MEAN,
        pytest.approx(0.2),
        pytest.approx(0.1),
        pytest.approx(0.4),
    )
    nobody = healthy(requests=requests(count=0))
    assert latency_gain(nobody, Interval.exactly(1.0), GainLabel.MEASURED) is None


@given(value=st.floats(-2.0, 3.0))
def test_no_request_gets_longer_than_it_was_or_shorter_than_nothing(value):
    gain = share_gain(at_most(value), GainLabel.UPPER_BOUND)
    assert 0.0 <= gain.low <= gain.value <= gain.high <= 1.0


def test_the_next_station_caps_throughput():
    loads = station_loads(saturated())
    first = limiter(loads)
    assert first is not None
    gain = throughput_gain(loads, Station.DEVICE, Interval(10.0, 1.1, 20.0), GainLabel.MODELLED)
    assert gain is not None
    loop = 27_000 / 0.55
    assert gain.value == gain.high == pytest.approx(loop / first.capacity_rows_per_s - 1.0)
    assert gain.low == pytest.approx(0.1)


def test_a_station_that_does_not_limit_gains_nothing():
    gain = throughput_gain(LOADS, Station.DEVICE, Interval.exactly(5.0), GainLabel.MODELLED)
    assert gain == Gain(GainMetric.THROUGHPUT, 0.0, 0.0, 0.0, GainLabel.MODELLED)


@pytest.mark.parametrize("station", [Station.ENCODE, Station.THREAD_POOL])
def test_no_gain_of_a_part_or_of_what_is_not_known(station):
    loads = tuple(load for load in LOADS if load.station is not Station.THREAD_POOL)
    assert throughput_gain(loads, station, Interval.exactly(2.0), GainLabel.MODELLED) is None


def test_a_station_without_a_next_one_has_no_upper_bound():
    loads = station_loads(saturated())
    assert throughput_without([load for load in loads if load.station is Station.DEVICE], Station.DEVICE) is None
    gain = throughput_without(loads, Station.DEVICE)
    assert gain is not None
    assert gain.low == 0.0
    assert gain.value == pytest.approx(27_000 / 0.55 / 30_769 - 1.0)
    assert gain.label is GainLabel.UPPER_BOUND


@given(factor=st.floats(1.0, 50.0), more=st.floats(1.0, 50.0))
def test_a_faster_station_never_lowers_throughput(factor, more):
    loads = station_loads(saturated())
    some = throughput_gain(loads, Station.DEVICE, Interval.exactly(factor), GainLabel.MODELLED)
    further = throughput_gain(loads, Station.DEVICE, Interval.exactly(factor * more), GainLabel.MODELLED)
    assert some is not None
    assert further is not None
    assert 0.0 <= some.value <= further.value


def test_device_time_is_latency_while_the_device_has_room():
    """Where no line can be laid through the costs, waits shrink as the batch does; only its own time is sure."""
    gain = device_gain(healthy(costs_s={}), LOADS, Interval(0.5, 0.4, 0.6), GainLabel.MEASURED)
    assert gain is not None
    assert gain.metric is GainMetric.LATENCY_MEAN
    assert gain.value == pytest.approx(0.5 * (560 + 350) / 1500)
    assert gain.low == pytest.approx(0.4 * 560 / 1500)
    assert gain.high == pytest.approx(0.6 * (560 + 350) / 1500)
    assert device_gain(bare(), LOADS, Interval.exactly(0.5), GainLabel.MEASURED) is None


@pytest.mark.parametrize("is_per_batch", [False, True])
def test_waits_shrink_more_than_batches_do(is_per_batch):
    """0.4 + 0.02 b ms at 10,000 rows a second: half of the time of each batch is more than half of waiting for them."""
    gain = device_gain(healthy(), LOADS, Interval(0.5, 0.4, 0.6), GainLabel.MEASURED, is_per_batch=is_per_batch)
    assert gain is not None
    assert gain.value > 0.5 * (560 + 350) / 1500
    assert gain.low == pytest.approx(0.4 * 560 / 1500)
    assert gain.low <= gain.value <= gain.high <= (560 + 350) / 1500
    assert gain.label is GainLabel.MODELLED


def test_device_time_is_throughput_where_the_device_limits():
    gain = device_gain(saturated(), station_loads(saturated()), Interval(0.2, 0.1, 0.3), GainLabel.MEASURED)
    assert gain is not None
    assert gain.metric is GainMetric.THROUGHPUT
    assert (gain.low, gain.value) == (pytest.approx(1 / 0.9 - 1), pytest.approx(0.25))


def test_a_device_without_anything_to_save_is_not_infinitely_fast():
    loads = station_loads(saturated(stations=stations(27_000 * 60, event_loop=0.001, device=0.88)))
    gain = device_gain(saturated(), loads, Interval(2.0, 1.0, 3.0), GainLabel.UPPER_BOUND)
    assert gain is not None
    assert gain.value <= 99.0 + 1e-9


def test_forms_are_not_mixed():
    """Media that cost ten times as much, and that hardly anybody sends, change nothing."""
    media = {Bucket(size, (), Form.MEDIA): 10 * cost_s(size) for size in BATCH_SIZES}
    both = healthy(costs_s=dict(healthy().costs_s) | media)
    saved = Interval.exactly(0.5)
    assert device_gain(both, LOADS, saved, GainLabel.MEASURED) == device_gain(
        healthy(), LOADS, saved, GainLabel.MEASURED
    )
    assert effective_cost(both) == effective_cost(healthy())


def test_no_line_is_laid_through_costs_of_different_shapes():
    shapes = (bucket_use(Bucket(8, (10,)), 10, 80), bucket_use(Bucket(8, (20,)), 10, 80))
    assert effective_cost(healthy(buckets=shapes)) is None


def test_saved_makes_gains_comparable():
    assert Gain(GainMetric.THROUGHPUT, 1.0, 1.0, 1.0, GainLabel.MEASURED).saved == 0.5
    assert Gain(GainMetric.LATENCY_MEAN, 0.5, 0.5, 0.5, GainLabel.MEASURED).saved == 0.5


def test_waiting_is_not_needed_to_know_a_device_gain():
    stages = {stage: one for stage, one in healthy().requests.stages.items() if stage is Stage.COMPUTE}
    snapshot = healthy(requests=requests(stages=stages), costs_s={})
    gain = device_gain(snapshot, LOADS, Interval.exactly(0.5), GainLabel.MEASURED)
    assert gain is not None
    assert gain.value == pytest.approx(0.5 * 560 / 1500)

"""What a window tells of buckets, lanes and the GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.buckets import Bucket
from service.requests import BatchFacts, DeviceTimings
from service.telemetry.gpu_figures import ClockEvent, GpuFigures, Reading
from service.telemetry.metrics import MAX_BUCKET_LABELS
from service.telemetry.snapshot_device import GapCause
from service.telemetry.window_device import bucket_uses, device_figures, gpu_window
from service.units import NS_PER_MS, NS_PER_S
from tests.doubles.watched_model import WatchedServer, lane_on_gpu

DEVICE = DeviceTimings(h2d=2 * NS_PER_MS, wait=NS_PER_MS, d2h=3 * NS_PER_MS, enqueue=NS_PER_MS // 10)


def gpu(clock: float = 1.5e9, utilization: float = 0.5, *, is_hot: bool = False) -> GpuFigures:
    return GpuFigures(
        uuid="u",
        name="NVIDIA H200",
        driver="1",
        readings={
            Reading.SM_CLOCK_HERTZ: clock,
            Reading.MAX_SM_CLOCK_HERTZ: 2e9,
            Reading.UTILIZATION_RATIO: utilization,
        },
        clock_events={ClockEvent.SW_THERMAL_SLOWDOWN: is_hot},
        sampling_ns=0,
    )


def test_buckets_of_the_window_alone():
    server = WatchedServer()
    model = server.add()
    model.run_batch(9.0, bucket=Bucket(2), rows=2)
    model.run_batch(9.5, rows=1)
    server.pass_seconds(1)
    model.run_batch(10.5, rows=3)
    model.run_batch(10.8, rows=4, facts=BatchFacts(4, 1))
    server.pass_seconds(1)
    (use,) = bucket_uses(server.history.span("m", 60.0))
    assert (use.bucket, use.batches, use.rows, use.useful_volume) == (Bucket(4), 2, 7, 7)
    assert use.compute is not None
    assert (use.compute.count, use.compute.sum_s) == (2, pytest.approx(0.14))
    assert use.cold is not None
    assert (use.cold.count, use.cold.sum_s) == (1, pytest.approx(0.07))
    assert (use.h2d, use.d2h, use.enqueue, use.h2d_bytes, use.miss_reason) == (None,) * 5


def test_the_profile_of_each_bucket_as_the_model_tells_it():
    server = WatchedServer()
    model = server.add(backend="tensorrt")
    model.source = replace(model.source, profiles={Bucket(4): 1})
    server.pass_seconds(1)
    model.run_batch(10.5)
    model.run_batch(10.6, bucket=Bucket(8))
    server.pass_seconds(1)
    assert [use.profile for use in bucket_uses(server.history.span("m", 60.0))] == [1, None]


def test_gaps_while_requests_waited_in_the_window_alone():
    server = WatchedServer()
    model = server.add(backend="tensorrt")
    late = BatchFacts(3, queued=2 * NS_PER_S, handed_over=NS_PER_MS)
    model.run_batch(9.0, device=DEVICE)
    model.run_batch(9.5, device=DEVICE, facts=late)
    server.pass_seconds(1)
    model.run_batch(9.9, device=DEVICE)
    model.run_batch(10.1, device=DEVICE, facts=late)
    server.pass_seconds(1)
    found = device_figures(server.history.span("m", 60.0)).idle_with_backlog_s
    assert found is not None
    # Computing began 0.078 s before a batch's end and ended 0.008 s before it; the lane began 0.084 s before it.
    assert found[GapCause.SYNC_NOTIFY] == pytest.approx(10.1 - 0.084 - 0.001 - (9.9 - 0.008))
    assert found[GapCause.HOST_SUBMIT] == pytest.approx(0.001 + 0.004)
    assert found[GapCause.COPY] == pytest.approx(0.002)
    assert found[GapCause.FORMATION] == 0.0


def test_gaps_of_lanes_on_the_cpu_are_not_told():
    server = WatchedServer()
    server.add()
    server.pass_seconds(1)
    assert device_figures(server.history.span("m", 60.0)).idle_with_backlog_s is None


def test_allocations_of_the_window_alone():
    server = WatchedServer()
    model = server.add(backend="tensorrt")
    model.lane_figures = (replace(lane_on_gpu(), allocations=2, allocation_ns=10**9),)
    server.pass_seconds(1)
    model.lane_figures = (replace(lane_on_gpu(), allocations=5, allocation_ns=4 * 10**9),)
    server.pass_seconds(1)
    found = device_figures(server.history.span("m", 60.0))
    assert (found.hot_allocations, found.hot_allocation_s) == (3, 3.0)


@pytest.mark.parametrize(
    ("samples", "most"),
    [
        pytest.param([0, 0], 0, id="nobody else"),
        pytest.param([0, 2], 2, id="some at times"),
        pytest.param([None, 1], None, id="not known all the time"),
    ],
)
def test_other_processes_on_the_gpu(samples, most):
    server = WatchedServer()
    server.add(backend="tensorrt")
    for count in samples:
        readings = {} if count is None else {Reading.OTHER_PROCESSES: count}
        server.gpus = (replace(gpu(), readings=readings),)
        server.pass_seconds(1)
    found = gpu_window(server.history.span("m", 60.0))
    assert found is not None
    assert found.other_processes == most


def test_a_bucket_that_came_meanwhile_counts_from_nothing():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(1)
    model.run_batch(10.5, bucket=Bucket(8, (3,)), rows=5)
    server.pass_seconds(1)
    (use,) = bucket_uses(server.history.span("m", 60.0))
    assert (use.bucket, use.rows) == (Bucket(8, (3,)), 5)


def test_copies_graphs_and_their_reasons_on_a_gpu():
    server = WatchedServer()
    model = server.add(backend="tensorrt")
    model.lane_figures = (lane_on_gpu(replays=5, eager_runs=2),)
    model.run_batch(9.9, device=DEVICE)
    server.pass_seconds(1)
    model.lane_figures = (lane_on_gpu(replays=15, eager_runs=3),)
    model.run_batch(10.5, device=DEVICE)
    model.run_batch(10.8, bucket=Bucket(12), rows=12, device=DEVICE)
    server.pass_seconds(1)
    uses = bucket_uses(server.history.span("m", 60.0))
    small, large = uses
    assert (small.replays, small.eager_runs, small.miss_reason) == (10, 1, "not_capturable")
    assert small.h2d is not None
    assert small.d2h is not None
    assert (small.h2d.count, small.h2d.sum_s, small.d2h.sum_s) == (1, 0.002, 0.003)
    assert small.enqueue is not None
    assert small.enqueue.sum_s == pytest.approx(0.0001)
    assert (small.h2d_bytes, large.h2d_bytes) == (2500, 7500)
    assert sum(use.d2h_bytes or 0 for use in uses) == 1000


def test_buckets_beyond_those_with_labels_are_left_out():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(1)
    for size in range(MAX_BUCKET_LABELS + 3):
        model.run_batch(10.5, bucket=Bucket(1, (size,)), rows=1)
    server.pass_seconds(1)
    assert len(bucket_uses(server.history.span("m", 60.0))) == MAX_BUCKET_LABELS


@pytest.mark.parametrize(("backend", "depth", "counted"), [("tensorrt", 2, 0), ("onnxruntime", 1, None)])
def test_lanes(backend, depth, counted):
    server = WatchedServer()
    server.add(backend=backend, lanes=3)
    server.pass_seconds(1)
    figures = device_figures(server.history.span("m", 60.0))
    assert (figures.lanes, figures.lane_depth) == (3, depth)
    assert (figures.pageable_copies, figures.shape_switches, figures.hot_allocations) == (counted,) * 3
    assert figures.lanes_busy_mean is None


def test_lanes_that_compute_side_by_side():
    """70 ms each: two lanes that overlap by 35 ms compute during 105 ms, alone one computes during 70."""
    server = WatchedServer()
    model = server.add(lanes=2)
    server.pass_seconds(1)
    model.run_batch(10.5, lane=0)
    server.pass_seconds(1)
    alone = device_figures(server.history.span("m", 60.0))
    model.run_batch(11.500, lane=0)
    model.run_batch(11.535, lane=1)
    server.pass_seconds(1)
    both = device_figures(server.history.span("m", 60.0))
    assert alone.lanes_busy_mean == pytest.approx(1.0)
    assert both.lanes_busy_mean == pytest.approx((70 + 140) / (70 + 105))


def test_the_gpu_s_clock_while_it_worked():
    server = WatchedServer()
    server.add(backend="tensorrt")
    for sample in (gpu(1.0e9, is_hot=True), gpu(2.0e9), gpu(0.2e9, utilization=0.0)):
        server.gpus = (sample,)
        server.pass_seconds(1)
    told = gpu_window(server.history.span("m", 60.0))
    assert told is not None
    assert told.sm_clock_ratio == pytest.approx(0.75)
    assert told.sm_clock_spread == pytest.approx(0.5 / 0.75)
    assert told.utilization_ratio == pytest.approx((0.5 + 0.5) / 4)
    assert told.clock_events[ClockEvent.SW_THERMAL_SLOWDOWN] == 0.25
    assert told.sm_activity_ratio is None


@pytest.mark.parametrize(("backend", "gpus"), [("onnxruntime", (gpu(),)), ("tensorrt", ()), ("tensorrt", (gpu(),) * 2)])
def test_no_gpu_or_nobody_knows_which(backend, gpus):
    server = WatchedServer()
    server.add(backend=backend)
    server.gpus = gpus
    server.pass_seconds(1)
    assert gpu_window(server.history.span("m", 60.0)) is None

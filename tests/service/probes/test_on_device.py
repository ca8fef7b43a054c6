"""Every experiment on TensorRT 8.6, 10 and 11, as the fake plays them; the same cases run on the real GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.buckets import Bucket, Form
from service.errors import DeviceError
from service.probes import bench as bench_module
from service.probes.bench import NotHere, Results
from service.probes.copies import copies
from service.probes.exposed_copies import exposed_copies, exposed_ns
from service.probes.lanes import lanes
from service.probes.launches import launches
from service.probes.layers import layers
from service.probes.other_costs import other_costs
from service.probes.preprocess import preprocess
from service.probes.profiles import profiles
from tests.doubles.probe_cases import ProbeCases, assert_interval, finish
from tests.doubles.probe_cases import make_bench as bench_on
from tests.doubles.trt_models import DOUBLE
from tests.service.runtime.trt.conftest import FakeBench, MakeBench
from tests.service.runtime.trt.media.conftest import MakeMediaBench


class TestOnTheFake(ProbeCases):
    """The cases of every GPU."""


def test_without_a_graph_a_launch_has_no_replay(make_bench: MakeBench) -> None:
    bench = make_bench("10", models={"double": replace(DOUBLE, is_capturable=False)})
    found = finish(launches(bench_on(bench.open("double"), Bucket(2)))).figures.launches
    assert found[Bucket(2)].replay is None
    assert_interval(found[Bucket(2)].eager)


def test_layers_of_two_buckets_at_most(bench: FakeBench) -> None:
    backend = bench.open("double")
    found = finish(layers(bench_on(backend, Bucket(8), Bucket(4), Bucket(1))))
    assert [profile.bucket for profile in found.layers] == [Bucket(8), Bucket(4)]


def test_the_kernels_of_a_task_are_what_media_take_longer_than_tensors(
    make_media_bench: MakeMediaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "MAX_LAUNCHES", 1)  # a kernel takes the emulated device as long as a real model
    bench = make_media_bench("10")
    backend = bench.open("speaker")
    before = bench.cuda.live
    known = [bucket for bucket in backend.spec.buckets.known() if bucket.form is Form.MEDIA]
    media = min(known, key=lambda bucket: bucket.volume)
    found = finish(preprocess(bench_on(backend, media)), most=6).figures.device_preprocess
    assert found is not None
    assert 0 <= found.low <= found.value <= found.high
    assert bench.cuda.live == before
    for start in (copies, other_costs):
        with pytest.raises(NotHere, match="all traffic is media"):
            finish(start(bench_on(backend, media)))


def test_nothing_is_compared_where_there_is_one_profile(bench: FakeBench) -> None:
    with pytest.raises(NotHere, match="nothing to compare"):
        finish(profiles(bench_on(bench.open("double"))))


def test_an_engine_that_takes_no_other_size_has_no_other_buckets(bench: FakeBench) -> None:
    """Half-way between 1 and 2 there is none, and no profile takes 16 rows."""
    with pytest.raises(NotHere, match="no batch of other sizes"):
        finish(other_costs(bench_on(bench.open("double"), Bucket(2))))


@pytest.mark.parametrize("start", [lanes, exposed_copies])
def test_lanes_that_would_take_the_last_memory_are_not_made(bench: FakeBench, start) -> None:
    backend = bench.open("double")
    before = bench.cuda.live
    with pytest.raises(NotHere, match="too little memory left"):
        finish(start(bench_on(backend, lane_bytes=1 << 60)))
    assert bench.cuda.live == before


def test_a_device_without_memory_ends_an_experiment_and_nothing_stays(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    backend = bench.open("double")
    before = bench.cuda.live
    bench.api.total_bytes = 1
    with pytest.raises(DeviceError):
        finish(launches(bench_on(backend)))
    assert bench.cuda.live == before


@pytest.mark.parametrize(
    ("lane_ns", "alone_ns", "copy_ns", "exposed"),
    [
        (100.0, 90.0, 50.0, 10.0),  # mostly hidden
        (150.0, 90.0, 50.0, 50.0),  # the host takes the rest
        (90.0, 90.0, 50.0, 0.0),
        (88.0, 90.0, 50.0, -2.0),  # noise keeps its sign, or the median would be biased
    ],
)
def test_copies_expose_no_more_than_they_take(lane_ns: float, alone_ns: float, copy_ns: float, exposed: float) -> None:
    assert exposed_ns(lane_ns, alone_ns, copy_ns) == exposed


def test_an_experiment_that_is_ended_before_its_first_round_has_no_results(bench: FakeBench) -> None:
    for start in (launches, copies, exposed_copies, lanes, other_costs):
        assert finish(start(bench_on(bench.open("double"), Bucket(8))), most=0) == Results()

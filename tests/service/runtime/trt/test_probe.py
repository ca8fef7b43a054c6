from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from service.buckets import Bucket
from service.errors import ExecutionFailed, ModelLoadFailed
from service.runtime.cuda.device import LiveCounts
from service.runtime.probe import LaunchTimes
from service.runtime.trt.probe import ROUND_LAUNCHES, TensorRTProbe
from tests.doubles.trt_models import DOUBLE
from tests.service.runtime.trt.conftest import FakeBench, MakeBench


def test_every_kind_of_launch_is_timed_and_all_is_freed(bench: FakeBench) -> None:
    backend = bench.open("double")
    before = bench.cuda.live
    with backend.create_probe(Bucket(4)) as probe:
        assert probe.graph_miss is None
        for timed in (probe.replay, probe.eager, probe.h2d, probe.d2h):
            times = timed(2 * ROUND_LAUNCHES + 1)
            assert times is not None
            assert times.host_ns > 0
    assert bench.cuda.live == before


def test_times_are_medians_by_launch_of_the_host_and_of_rounds_of_the_device(make_bench: MakeBench) -> None:
    host, device = itertools.count(step=7), itertools.count(step=5000)
    bench = make_bench("10", clock=lambda: next(device))
    backend = bench.open("double")
    engine, shapes = backend._engine, backend.bucket_shapes[0]
    probe = TensorRTProbe.open(bench.cuda, engine, backend.spec, shapes, clock=lambda: next(host))
    with probe:
        times = probe.h2d(2 * ROUND_LAUNCHES + 1)
    assert times == LaunchTimes(device_ns=5000 / ROUND_LAUNCHES, host_ns=7)


def test_an_eager_launch_is_none_of_the_graph(bench: FakeBench) -> None:
    with bench.open("double").create_probe(Bucket(2)) as probe:
        launched = bench.api.calls["cudaGraphLaunch"]
        probe.eager(3)
        assert bench.api.calls["cudaGraphLaunch"] == launched
        probe.replay(3)
        assert bench.api.calls["cudaGraphLaunch"] == launched + 3


def test_without_a_graph_there_is_nothing_to_replay(make_bench: MakeBench) -> None:
    stubborn = replace(DOUBLE, is_capturable=False)
    bench = make_bench("10", models={"double": stubborn})
    with bench.open("double").create_probe(Bucket(1)) as probe:
        assert probe.replay(3) is None
        assert "cannot be captured" in str(probe.graph_miss)
        assert probe.eager(1).host_ns > 0


def test_a_failed_opening_leaves_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("10")
    backend = bench.open("double")
    bench.world.faults.enqueues = 1
    with pytest.raises(ExecutionFailed, match="TensorRT refused"):
        backend.create_probe(Bucket(1))
    assert bench.cuda.live == LiveCounts()


def test_a_bucket_that_the_card_does_not_serve_is_timed_where_a_profile_allows_it(bench: FakeBench) -> None:
    backend = bench.open("sequence")
    before = bench.cuda.live
    other = Bucket(3, (12,))
    assert other not in set(backend.spec.buckets.known())
    assert backend.profiles(other) == (1,)
    with backend.create_probe(other) as probe:
        assert probe.eager(1).device_ns >= 0
    assert bench.cuda.live == before
    with pytest.raises(ModelLoadFailed, match="no profile of model 'sequence' allows bucket 5x12; the engine has"):
        backend.create_probe(Bucket(5, (12,)))


def test_a_bucket_runs_on_every_profile_that_allows_it(bench: FakeBench) -> None:
    backend = bench.open("sequence")
    both = Bucket(4, (8,))
    assert sorted(backend.profiles(both)) == [0, 1]
    before = bench.cuda.live
    for profile in backend.profiles(both):
        with backend.create_probe(both, profile=profile) as probe:
            assert probe.replay(1) is not None
    assert bench.cuda.live == before

"""Experiments on a real GPU: the cases of the fake, and figures that only real hardware has."""

from __future__ import annotations

import pytest

from service.buckets import Bucket
from service.probes.copies import copies
from service.probes.exposed_copies import exposed_copies
from service.probes.idle import idle
from service.probes.lanes import lanes
from service.probes.launches import launches
from service.probes.layers import layers
from tests.doubles.probe_cases import FEW, ProbeCases, finish, make_bench, make_tools
from tests.doubles.trt_models import TrtBench
from tests.gpu.test_trt import bench, flavour, plan_path, process_cuda  # noqa: F401 - fixtures

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]


class TestOnTheDevice(ProbeCases):
    """The cases of the fake."""


def test_a_graph_costs_the_device_no_more_than_its_launches_one_by_one(bench: TrtBench) -> None:  # noqa: F811
    backend = bench.open("tower")
    bucket = next(iter(backend.spec.buckets.known()))
    probe = finish(launches(make_bench(backend, bucket))).figures.launches[bucket]
    assert probe.replay is not None
    assert probe.replay.low <= probe.eager.high
    assert 1e-6 < probe.replay.value < 1e-2
    assert 1e-6 < probe.eager_host.value < 1e-2


def test_pinned_copies_of_megabytes_run_at_gigabytes_per_second(bench: TrtBench) -> None:  # noqa: F811
    found = finish(copies(make_bench(bench.open("wide"), Bucket(8)))).figures
    assert found.pinned_h2d_bytes_per_s is not None
    assert found.pinned_d2h_bytes_per_s is not None
    assert 2e9 < found.pinned_h2d_bytes_per_s < 1e12
    assert 2e9 < found.pinned_d2h_bytes_per_s < 1e12


def test_copies_of_a_model_that_hardly_computes_are_exposed(bench: TrtBench) -> None:  # noqa: F811
    """4 MiB each way take longer than one addition per value."""
    found = finish(exposed_copies(make_bench(bench.open("wide"), Bucket(8))), most=FEW).figures.exposed_copy
    assert found[Bucket(8)].low > 0


def test_lanes_have_rates(bench: TrtBench) -> None:  # noqa: F811
    """Whether a second one pays is the machine's business: of so small a model it is the host that launches."""
    rates = finish(lanes(make_bench(bench.open("tower")))).figures.lane_rates
    assert {1, 2} <= set(rates)
    assert all(0 < rate.low <= rate.value <= rate.high for rate in rates.values())


def test_a_pause_of_no_time_slows_nothing(bench: TrtBench) -> None:  # noqa: F811
    tools = make_tools(rest=lambda seconds: None)
    factors = finish(idle(make_bench(bench.open("tower"), tools=tools))).figures.idle_factors
    assert all(0.3 < factor.value < 3.0 for factor in factors.values())


def test_layers_have_times(bench: TrtBench) -> None:  # noqa: F811
    backend = bench.open("tower")
    (profile,) = finish(layers(make_bench(backend, next(iter(backend.spec.buckets.known()))))).layers
    assert profile.span_s > 0
    assert sum(layer.time_s for layer in profile.layers) > 0

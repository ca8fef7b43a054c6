"""Rounds: every bucket of every side once each, in alternating order; and what of them is kept."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bench.drive import DriveResult
from service.bench.layer_rounds import LayerRounds, numbered
from service.bench.measure import Trial
from service.bench.recording import BATCH, LEAST_NS, STEP
from service.bench.rounds import MOST_SAMPLES, stage_samples, thinned, to_series, visit
from service.buckets import Bucket
from service.requests import BatchTimings
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_spec
from tests.service.runtime.trt.conftest import MakeBench, make_bench  # noqa: F401 - a fixture

TRIAL = Trial(lane_counts=(2,), duration_s=0.02)


def test_every_bucket_of_every_side_is_visited_in_every_round() -> None:
    backends = [HeldBackend(make_spec(), clock=time.monotonic_ns, held=False) for _ in range(2)]
    before: list[int] = []
    visits = visit(backends, [Bucket(4), Bucket(1)], TRIAL, 5, lambda: before.append(len(backends[0].batches)))
    assert len(visits) == 2
    assert len(before) == 5
    assert before[0] == 0
    assert before == sorted(before)
    for backend, each in zip(backends, visits, strict=True):
        assert list(each) == [Bucket(4), Bucket(1)]
        assert all(len(results) == 5 for results in each.values())
        assert backend.warmed == [Bucket(4), Bucket(1)] * 2
        assert backend.closed_lanes == 2
        assert {len(rounds) for rounds in to_series(each).values()} == {5}


def test_sides_take_turns_at_coming_first() -> None:
    order: list[str] = []
    backends = [HeldBackend(make_spec(), clock=time.monotonic_ns, held=False) for _ in range(2)]
    backends[0].fails_on = lambda request: order.append("a")
    backends[1].fails_on = lambda request: order.append("b")
    visit(backends, [Bucket(1)], Trial(lane_counts=(1,), duration_s=0.004), 4, lambda: None)
    turns = [name for index, name in enumerate(order) if index == 0 or order[index - 1] != name]
    assert turns == ["a", "b", "a", "b", "a"], "a b, b a, a b, b a: neighbours of the same side run into one another"


def test_a_gpu_s_lanes_and_layers_are_recorded_in_the_same_rounds(make_bench: MakeBench) -> None:  # noqa: F811
    bench = make_bench("10")
    backend, trial = bench.open("double"), Trial(lane_counts=(1,), duration_s=0.02, is_registered=True)
    with ExitStack() as stack:
        layers = LayerRounds([backend], [Bucket(8)], stack)
        (visits,) = visit([backend], [Bucket(8)], trial, 3, layers.run)
    stages, (of_layers,) = to_series(visits), layers.series()
    assert {place.name for place in stages} == {"enqueue", "h2d", "compute", "d2h", BATCH, STEP}
    assert of_layers
    assert {place.bucket for place in (*stages, *of_layers)} == {"8"}
    assert {len(rounds) for rounds in (*stages.values(), *of_layers.values())} == {3}
    assert bench.api.calls["cudaHostRegister"] == bench.api.calls["cudaHostUnregister"] == 1


def test_names_that_repeat_are_numbered() -> None:
    assert list(numbered(["a", "b", "a", "a"])) == ["a", "b", "a #2", "a #3"]


def test_stages_are_between_the_moments_of_a_batch() -> None:
    result = DriveResult(
        batches=2,
        duration_s=4e-6,
        host_s=0.0,
        timings=(BatchTimings(0, 100, 700, 900), BatchTimings(1000, 1000, 1700, 2000)),
        enqueues_ns=(30, 40),
    )
    assert stage_samples(result) == {
        "enqueue": (30.0, 40.0),
        "h2d": (100.0, LEAST_NS),
        "compute": (600.0, 700.0),
        "d2h": (200.0, 300.0),
        BATCH: (900.0, 1000.0),
        STEP: (pytest.approx(2000.0),),
    }


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=5 * MOST_SAMPLES))
def test_samples_are_thinned_evenly(durations_ns: list[float]) -> None:
    kept = thinned(durations_ns)
    assert len(kept) <= MOST_SAMPLES
    assert len(kept) >= min(len(durations_ns), MOST_SAMPLES // 2)
    assert kept[0] == max(LEAST_NS, durations_ns[0])
    assert min(kept) >= LEAST_NS

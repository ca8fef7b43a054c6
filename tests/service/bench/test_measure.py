"""A bucket measured on the CPU and on the fake GPU: shares, cuts and means."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bench.measure import ARENA_ALIGNMENT_BYTES, BucketFigures, Trial, in_arena, measure, split
from service.bench.report import ceilings_table, lanes_table, to_dicts
from service.buckets import Bucket
from service.requests import Batch
from service.runtime.synthetic import synthetic_batch
from service.tensors import HostArray
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_spec
from tests.service.runtime.trt.conftest import FakeBench, MakeBench, make_bench  # noqa: F401 - a fixture

TRIAL = Trial(lane_counts=(1, 2), duration_s=0.02)


@given(rows=st.integers(1, 9), size=st.integers(1, 8))
def test_a_cut_batch_has_the_same_rows(rows: int, size: int) -> None:
    whole = synthetic_batch(make_spec(max_batch_size=8), Bucket(size))
    cut = split(whole, rows)
    assert sum(request.rows for request in cut.requests) == size == cut.size
    assert all(request.rows == len(request.inputs[0]) <= rows for request in cut.requests)
    np.testing.assert_array_equal(
        np.concatenate([request.inputs[0] for request in cut.requests]), whole.requests[0].inputs[0]
    )


def test_without_a_device_there_is_no_ceiling() -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    figures = measure(backend, Bucket(4), TRIAL)
    assert figures.ceiling is None
    assert [lanes.lanes for lanes in figures.lanes] == [1, 2]
    assert all(lanes.ceiling_share is None and lanes.rows_per_s > 0 for lanes in figures.lanes)
    assert to_dicts([figures])[0]["ceiling"] is None
    assert ceilings_table(backend.spec, [figures]).row_count == 0
    assert lanes_table(backend.spec, [figures]).row_count == 2


@pytest.fixture
def figures(make_bench: MakeBench) -> BucketFigures:  # noqa: F811
    bench: FakeBench = make_bench("10")
    return measure(bench.open("double"), Bucket(8), Trial(lane_counts=(1,), duration_s=0.02, rows_per_request=2))


def test_a_share_of_the_ceiling_is_the_lanes_rate_by_the_devices(figures: BucketFigures) -> None:
    ceiling, (lanes,) = figures.ceiling, figures.lanes
    assert ceiling is not None
    assert ceiling.replay is not None
    assert ceiling.batch_ns == ceiling.replay.device_ns
    assert lanes.ceiling_share == pytest.approx(lanes.rows_per_s / 8 * ceiling.batch_ns / 1e9)
    assert lanes.p50_ms <= lanes.p99_ms


def test_the_figures_are_shown(figures: BucketFigures, make_bench: MakeBench) -> None:  # noqa: F811
    spec = make_spec()
    assert ceilings_table(spec, [figures]).row_count == lanes_table(spec, [figures]).row_count == 1
    (shown,) = to_dicts([figures])
    assert shown["bucket"] == "8"
    assert set(shown["ceiling"]) == {"graph", "eager", "h2d", "d2h"}
    assert shown["lanes"][0]["rows_per_s"] == figures.lanes[0].rows_per_s


@given(rows=st.integers(1, 5), size=st.integers(1, 8))
def test_an_arena_holds_the_same_values_in_one_piece(rows: int, size: int) -> None:
    batches = [split(synthetic_batch(make_spec(max_batch_size=8), Bucket(size)), rows) for _ in range(2)]
    placed, host_arena = in_arena(batches)
    assert [[request.rows for request in batch.requests] for batch in placed] == [
        [request.rows for request in batch.requests] for batch in batches
    ]
    for was, now in zip(inputs_of(batches), inputs_of(placed), strict=True):
        np.testing.assert_array_equal(now, was)
        assert np.shares_memory(now, host_arena)
        assert now.ctypes.data % ARENA_ALIGNMENT_BYTES == 0
    host_arena[:] = 0
    assert all(not values.any() for values in inputs_of(placed)), "no two inputs may overlap, nor lie elsewhere"


def inputs_of(batches: Sequence[Batch]) -> list[HostArray]:
    return [values for batch in batches for request in batch.requests for values in request.inputs]


def test_registered_requests_are_not_staged_and_are_let_go(make_bench: MakeBench) -> None:  # noqa: F811
    bench = make_bench("10")
    trial = Trial(lane_counts=(1,), duration_s=0.02, is_registered=True)
    assert measure(bench.open("double"), Bucket(8), trial).lanes[0].rows_per_s > 0
    assert bench.api.calls["cudaHostRegister"] == bench.api.calls["cudaHostUnregister"] == 1

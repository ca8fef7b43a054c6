"""What a lane tells of itself: which buckets have graphs and why not, what it costs the host, what memory it holds."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest

from service.buckets import Bucket
from service.cards import LanesCard
from service.device_figures import MemoryOwner, MissReason
from service.runtime.trt.graph_budget import DEFAULT_SHARE
from service.runtime.trt.lane import LANE_DEPTH
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.trt_models import DOUBLE, WIDTH, assert_right
from tests.service.runtime.trt.conftest import MakeBench, assert_works, batch


@pytest.mark.parametrize(
    ("model", "reason", "words"),
    [
        (
            replace(DOUBLE, is_capturable=False),
            MissReason.NOT_CAPTURABLE,
            "cannot be captured: .*when stream is capturing",
        ),
        (
            replace(DOUBLE, replay_error=1),
            MissReason.REPLAY_DIFFERS,
            "the replay of its graph differs from the eager run",
        ),
    ],
)
def test_a_bucket_without_a_graph_runs_eagerly(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture, model: object, reason: MissReason, words: str
) -> None:
    bench = make_bench(models={"double": model})
    backend = bench.open("double")
    with caplog.at_level(logging.WARNING):
        lane = bench.lane(backend)
    misses = lane.figures().graph_misses
    assert set(misses) == set(backend.spec.buckets.known())
    assert "bucket 8 runs without a CUDA Graph" in caplog.text
    assert {miss.reason for miss in misses.values()} == {reason}
    assert all(re.search(words, miss.detail) for miss in misses.values())
    assert_works(bench, lane)
    figures = lane.figures()
    assert figures.eager_runs == {Bucket(size): LANE_DEPTH + 1 if size == 4 else 0 for size in (8, 4, 2, 1)}
    assert set(figures.replays.values()) == {0}
    assert bench.cuda.live.graphs == 0
    assert figures.device_bytes[MemoryOwner.GRAPHS] == 0


def test_no_memory_for_graphs_means_eager(make_bench: MakeBench) -> None:
    bench = make_bench()
    backend = bench.open("double")
    lane = bench.lane(backend, warm=False)
    bench.api.inject("cudaGraphInstantiate", E.cudaErrorMemoryAllocation)
    lane.warm_up(Bucket(4))
    lane.warm_up(Bucket(8))
    misses = lane.figures().graph_misses
    assert "out of memory" in misses[Bucket(4)].detail
    assert Bucket(8) not in misses
    assert_works(bench, lane)


def test_memory_is_counted_by_owner(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    runs = 4 * LANE_DEPTH
    buffers = LANE_DEPTH * 2 * 8 * WIDTH * 4
    assert lane.figures().device_bytes == {
        MemoryOwner.SCRATCH: DOUBLE.scratch[0],
        MemoryOwner.BUFFERS: buffers,
        MemoryOwner.CONTEXTS: runs * DOUBLE.persistent_bytes,
        MemoryOwner.GRAPHS: runs * bench.api.graph_bytes,
    }
    assert bench.cuda.live.device_bytes == buffers + DOUBLE.scratch[0]


def test_batches_and_bytes_are_counted(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    assert_works(bench, lane)
    figures = lane.figures()
    assert figures.replays == {Bucket(8): 0, Bucket(4): LANE_DEPTH + 1, Bucket(2): 0, Bucket(1): 0}
    assert figures.h2d_bytes == figures.d2h_bytes == (LANE_DEPTH + 1) * 4 * WIDTH * 4
    assert_works(bench, lane)
    assert figures.replays[Bucket(4)] == LANE_DEPTH + 1
    lane.close()
    assert lane.figures().replays[Bucket(4)] == 2 * (LANE_DEPTH + 1)


def test_the_smallest_buckets_keep_their_graphs_within_the_budget(make_bench: MakeBench) -> None:
    bench = make_bench()
    of_one_bucket = LANE_DEPTH * bench.api.graph_bytes
    backend = bench.open("double", lanes=LanesCard(graph_memory_bytes=2 * of_one_bucket))
    lane = bench.lane(backend)
    figures = lane.figures()
    assert set(figures.graph_misses) == {Bucket(8), Bucket(4)}
    assert {miss.reason for miss in figures.graph_misses.values()} == {MissReason.MEMORY_BUDGET}
    assert "took 131072 bytes, and those of a lane may take 262144; give" in figures.graph_misses[Bucket(8)].detail
    assert figures.device_bytes[MemoryOwner.GRAPHS] == 2 * of_one_bucket
    assert bench.cuda.live.graphs == 2 * LANE_DEPTH
    for size in (8, 2):
        each = batch(bench, size=size)
        assert_right("double", each, lane.sync(lane.enqueue(each)).outputs)
    figures = lane.figures()
    assert (figures.eager_runs[Bucket(8)], figures.replays[Bucket(2)]) == (1, 1)


@pytest.mark.parametrize(("graphs_that_fit", "misses"), [(7, 1), (8, 0)])
def test_by_default_graphs_may_take_a_tenth_of_what_is_free(
    make_bench: MakeBench, graphs_that_fit: int, misses: int
) -> None:
    bench = make_bench()
    backend = bench.open("double")
    bench.api.graph_bytes = bench.cuda.memory_info().free_bytes // DEFAULT_SHARE // graphs_that_fit
    assert len(bench.lane(backend).figures().graph_misses) == misses


def test_warming_twice_does_nothing(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    live = bench.cuda.live
    lane.warm_up(Bucket(8))
    assert bench.cuda.live == live


def test_memory_does_not_grow_with_the_buckets(make_bench: MakeBench) -> None:
    bench = make_bench()
    backend = bench.open("double")
    lane = bench.lane(backend, warm=False)
    before = bench.cuda.live
    for bucket in backend.spec.buckets.known():
        lane.warm_up(bucket)
    assert bench.cuda.live.device_bytes == before.device_bytes
    assert bench.cuda.live.pinned_bytes == before.pinned_bytes


def test_nothing_is_allocated_or_captured_after_the_warm_up(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    before = dict(bench.api.calls)
    assert_works(bench, lane)
    new = {name for name, count in bench.api.calls.items() if count != before.get(name)}
    assert new == {
        "cudaEventElapsedTime",
        "cudaEventRecord",
        "cudaEventSynchronize",
        "cudaGraphLaunch",
        "cudaMemcpyAsync",
        "cudaStreamWaitEvent",
    }
    assert bench.api.pageable_copies == 0


def test_what_a_batch_costs_the_host(make_bench: MakeBench) -> None:
    bench = make_bench()
    lane = bench.lane(bench.open("double"))
    before = bench.api.calls.copy()
    ticket = lane.enqueue(batch(bench))
    assert bench.api.calls - before == {
        "cudaEventRecord": 5,
        "cudaStreamWaitEvent": 2,
        "cudaMemcpyAsync": 2,
        "cudaGraphLaunch": 1,
    }
    lane.sync(ticket)

"""Outputs whose sizes depend on the data: memory that grows, memory that is refused, and who may be batched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.buckets import Bucket
from service.cards import BatchingCard
from service.device_figures import MemoryOwner
from service.errors import DeviceError, ExecutionFailed
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.cuda.stream import Stream
from service.runtime.trt.data_dependent import RESERVE_BYTES, DataDependentOutputs
from service.runtime.trt.lane import LANE_DEPTH
from service.tensors import DType, TensorSpec
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_tensorrt_model import FakeModel
from tests.doubles.onnx_batches import request_of
from tests.doubles.trt_models import SELECT, WIDTH, assert_right
from tests.service.runtime.trt.conftest import FakeBench, MakeBench

TIGHT = replace(SELECT, max_output_bytes=1, program="select_above_one")
"""The warm-up selects nothing and the bound is too low, so that memory must grow later; no real engine is so wrong."""


def full(spec: ModelSpec, rows: int) -> Batch:
    """Every value is selected."""
    x = np.random.default_rng(rows).random((rows, WIDTH), np.float32) + np.float32(1)
    return Batch(Bucket(1, (rows,)), (request_of(spec, x, dims=(rows,)),), 1)


def test_what_can_be_needed_is_there_beforehand(make_bench: MakeBench) -> None:
    bench = make_bench(models={"select": replace(SELECT, max_output_bytes=2 * 8 * WIDTH * 4)})
    backend = bench.open("select")
    lane = bench.lane(backend)
    before = dict(bench.api.calls)
    for rows in (8, 8, 1, 8):
        lane.sync(lane.enqueue(full(backend.spec, rows)))
    assert {name: bench.api.calls[name] - before[name] for name in ("cudaMalloc", "cudaHostAlloc")} == {
        "cudaMalloc": 0,
        "cudaHostAlloc": 0,
    }
    assert lane.figures().d2h_bytes == 3 * (2 + 1) * 8 * WIDTH * 4 + (2 + 1) * WIDTH * 4


def test_memory_grows_to_what_is_needed_and_no_further(make_bench: MakeBench) -> None:
    bench = make_bench(models={"select": TIGHT})
    backend = bench.open("select")
    lane = bench.lane(backend)
    held = [lane.figures().device_bytes[MemoryOwner.BUFFERS]]
    for _ in range(3):
        for _ in range(LANE_DEPTH):
            batch = full(backend.spec, 8)
            assert_right("select", batch, lane.sync(lane.enqueue(batch)).outputs)
        held.append(lane.figures().device_bytes[MemoryOwner.BUFFERS])
        assert held[-1] == bench.cuda.live.device_bytes - SELECT.scratch[0]
    assert held[0] < held[1] == held[2] == held[3]
    lane.close()
    assert bench.cuda.live.device_bytes == bench.cuda.live.pinned_bytes == 0


@pytest.mark.parametrize("call", ["cudaMalloc", "cudaHostAlloc"])
def test_no_memory_fails_one_batch(make_bench: MakeBench, call: str) -> None:
    bench = make_bench(models={"select": TIGHT})
    backend = bench.open("select")
    lane = bench.lane(backend)
    sent = full(backend.spec, 8)
    bench.api.inject(call, E.cudaErrorMemoryAllocation)
    with pytest.raises(DeviceError, match=f"out of memory, in {call}") as raised:
        lane.enqueue(sent)
    assert not raised.value.is_sticky
    for _ in range(LANE_DEPTH + 1):
        assert_right("select", sent, lane.sync(lane.enqueue(sent)).outputs)


def test_a_refused_enqueue_fails_one_batch(make_bench: MakeBench) -> None:
    bench = make_bench()
    backend = bench.open("select")
    lane = bench.lane(backend)
    bench.world.faults.enqueues = 1
    with pytest.raises(ExecutionFailed, match="in bucket 1x8: enqueue was told to fail"):
        lane.enqueue(full(backend.spec, 8))
    assert_right("select", full(backend.spec, 8), lane.sync(lane.enqueue(full(backend.spec, 8))).outputs)


def test_rows_one_at_a_time_where_outputs_keep_a_dimension_for_them(make_bench: MakeBench) -> None:
    kept = FakeModel(
        inputs={"x": ("FLOAT", (-1, WIDTH))},
        outputs={"y": ("FLOAT", (-1, -1))},
        profiles=({"x": ((1, WIDTH), (1, WIDTH), (1, WIDTH))},),
        program="keep_positive",
        data_dependent=frozenset({"y"}),
        data_dependent_dims=(1, -1),
    )
    bench = make_bench(models={"kept": kept})
    backend = bench.open("kept", batching=BatchingCard(max_batch_size=1))
    lane = bench.lane(backend)
    x = np.asarray([[3, -1, 4, -1, 5, -9, 2, -6]], np.float32)
    (got,) = lane.sync(lane.enqueue(Batch(Bucket(1), (request_of(backend.spec, x),), 1))).outputs
    np.testing.assert_array_equal(got[0], [[3, 4, 5, 2]])


def test_a_probe_times_such_a_bucket_too(bench: FakeBench) -> None:
    before = bench.cuda.live
    with bench.open("select").create_probe(Bucket(1, (4,))) as probe:
        assert "'indices' depends on the data" in str(probe.graph_miss)
        assert probe.replay(2) is None
        assert probe.eager(2).host_ns > 0
        assert probe.d2h(2).host_ns > 0
    assert bench.cuda.live == before


def test_memory_beyond_the_reserve_is_counted_with_its_time(make_bench: MakeBench) -> None:
    bench = make_bench()
    moments = iter(range(0, 1000, 10))
    tensors = [TensorSpec("i", DType.INT32, (2, "n"))]
    outputs = DataDependentOutputs(bench.cuda, bench.flavour.module, tensors, clock=lambda: next(moments))
    outputs.reserve({"i": 64})
    assert (outputs.allocations, outputs.allocation_ns) == (0, 0), "what start-up allocates is not counted"
    outputs.give("i", 64)
    assert outputs.allocations == 0
    outputs.give("i", 65)
    outputs.give("i", 100)
    assert (outputs.allocations, outputs.allocation_ns) == (1, 10), "the second one fits what the first one got"
    outputs.tell("i", (2, 16))
    with Stream(bench.cuda) as stream:
        outputs.download(stream=stream)
    assert (outputs.allocations, outputs.allocation_ns) == (2, 20), "page-locked memory counts as well"
    outputs.close()


def test_an_absurd_bound_is_not_reserved(make_bench: MakeBench) -> None:
    bench = make_bench()
    outputs = DataDependentOutputs(bench.cuda, bench.flavour.module, [TensorSpec("i", DType.INT32, (2, "n"))])
    outputs.reserve({"i": 1 << 50})
    assert outputs.device_bytes == RESERVE_BYTES
    assert outputs.give("i", 0) == outputs.give("i", 5) != 0
    outputs.close()
    outputs.close()


def test_a_buffer_that_is_not_freed_keeps_no_other_from_being_freed(make_bench: MakeBench) -> None:
    bench = make_bench()
    before = bench.cuda.live
    tensors = [TensorSpec(name, DType.INT32, (2, "n")) for name in ("i", "j")]
    outputs = DataDependentOutputs(bench.cuda, bench.flavour.module, tensors)
    outputs.reserve({"i": 256, "j": 256})
    bench.api.inject("cudaFree", E.cudaErrorInvalidValue)
    with pytest.raises(DeviceError, match="cudaFree"):
        outputs.close()
    assert bench.cuda.live.device_bytes == before.device_bytes + 256
    assert bench.cuda.live.pinned_bytes == before.pinned_bytes

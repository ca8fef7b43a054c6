"""What a TensorRT lane promises, as tests that run on the fake device and, unchanged, on a real GPU."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.buckets import Bucket
from service.device_figures import MemoryOwner, MissReason
from service.errors import ExecutionFailed, ModelLoadFailed
from service.requests import Batch
from service.runtime.batch_invariance import KERNELS_PER_BUCKET, check_batch_invariance
from service.runtime.cuda.device import LiveCounts
from service.runtime.trt.lane import LANE_DEPTH
from service.runtime.warm_up import warm_up
from tests.doubles.onnx_batches import request_of
from tests.doubles.trt_models import WIDE_BYTES, TrtBench, assert_right, batch_in, in_memory

NAMES = ("double", "pair", "sequence")


@st.composite
def rows_of(draw: st.DrawFn, padded_size: int) -> tuple[int, ...]:
    """Rows of the requests of one batch, which fill the bucket or less."""
    left = draw(st.integers(1, padded_size))
    rows = []
    while left:
        rows.append(draw(st.integers(1, left)))
        left -= rows[-1]
    return tuple(rows)


class LaneCases:
    """Needs a fixture `bench: TrtBench`."""

    @pytest.mark.parametrize("name", NAMES)
    def test_random_batches_two_in_flight_give_each_row_its_own(self, bench: TrtBench, name: str) -> None:
        backend = bench.open(name)
        spec, lane = backend.spec, bench.lane(backend)
        buckets = tuple(spec.buckets.known())
        steps = st.sampled_from(buckets).flatmap(lambda b: st.tuples(st.just(b), rows_of(b.padded_size)))

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(steps, min_size=1, max_size=8), st.integers(0, 2**32))
        def run(plan: list[tuple[Bucket, tuple[int, ...]]], seed: int) -> None:
            rng = np.random.default_rng(seed)
            in_flight: list[tuple[Batch, object]] = []
            for bucket, rows in plan:
                batch = batch_in(spec, bucket, rng, rows)
                in_flight.append((batch, lane.enqueue(batch)))
                if len(in_flight) == LANE_DEPTH:
                    older, ticket = in_flight.pop(0)
                    assert_right(name, older, lane.sync(ticket).outputs)
            for batch, ticket in in_flight:
                assert_right(name, batch, lane.sync(ticket).outputs)

        run()
        figures = lane.figures()
        assert figures.graph_misses == {}
        assert sum(figures.eager_runs.values()) == 0
        assert sum(figures.replays.values()) > 0
        assert figures.h2d_bytes > 0 < figures.d2h_bytes

    @pytest.mark.parametrize("name", NAMES)
    def test_the_warm_up_of_every_backend_passes(self, bench: TrtBench, name: str) -> None:
        backend = bench.open(name)
        lane = bench.lane(backend, warm=False)
        warmth = warm_up(lane, backend.spec, lambda bucket: None, first_run_counts=False)
        assert check_batch_invariance(lane, backend.spec, KERNELS_PER_BUCKET) == {}
        assert warmth.unserved == {}
        assert set(warmth.costs.measured_ns) == set(backend.spec.buckets.known())
        assert all(cost_ns > 0 for cost_ns in warmth.costs.measured_ns.values())

    @pytest.mark.parametrize("memory", ["pageable", "pinned", "registered", "mixed"])
    @pytest.mark.parametrize("name", ["wide", "long"])
    @pytest.mark.parametrize("pad", [0.0, 1.5])
    def test_large_rows_from_any_memory(self, bench: TrtBench, name: str, memory: str, pad: float) -> None:
        backend = bench.open(name, pad_values={"x": pad})
        spec, lane = backend.spec, bench.lane(backend)
        rng = np.random.default_rng(13)
        kinds = ["pageable", "pinned", "registered"] * 3 if memory == "mixed" else [memory] * 9
        for bucket in spec.buckets.known():
            for rows in ((bucket.padded_size,), (1,) * bucket.padded_size, (1, 2), (bucket.padded_size - 1,)):
                if not 0 < sum(rows) <= bucket.padded_size or 0 in rows:
                    continue
                with ExitStack() as stack:
                    batch = batch_in(spec, bucket, rng, rows)
                    lying = [
                        stack.enter_context(in_memory(bench.cuda, request, kind))
                        for request, kind in zip(batch.requests, kinds, strict=False)
                    ]
                    batch = Batch(bucket, tuple(lying), batch.size)
                    assert_right(name, batch, lane.sync(lane.enqueue(batch)).outputs)

    @pytest.mark.parametrize(
        ("memory", "rows", "pad", "h2d_rows"),
        [
            ("pageable", (8,), 0.0, 8),
            ("registered", (3, 5), 0.0, 8),
            ("registered", (3, 2), 0.0, 5),
            ("pageable", (5,), 0.0, 5),
            ("registered", (5,), 1.5, 8),
        ],
    )
    def test_padding_that_the_device_can_fill_is_not_copied(
        self, bench: TrtBench, memory: str, rows: tuple[int, ...], pad: float, h2d_rows: int
    ) -> None:
        backend = bench.open("wide", pad_values={"x": pad})
        lane = bench.lane(backend)
        batch = batch_in(backend.spec, Bucket(8), np.random.default_rng(14), rows)
        with ExitStack() as stack:
            lying = tuple(stack.enter_context(in_memory(bench.cuda, each, memory)) for each in batch.requests)
            lane.sync(lane.enqueue(Batch(Bucket(8), lying, batch.size)))
        assert lane.figures().h2d_bytes == h2d_rows * WIDE_BYTES

    def test_outputs_whose_sizes_depend_on_the_data(self, bench: TrtBench) -> None:
        """Padding is zeros, which are never selected: every request has its own, however much that is."""
        backend = bench.open("select")
        spec, lane = backend.spec, bench.lane(backend)
        rng = np.random.default_rng(21)
        in_flight: list[tuple[Batch, object]] = []
        for bucket in (*spec.buckets.known(), *spec.buckets.known()):
            for selected in (0.0, 0.4, 1.0):
                shape = (int(rng.integers(1, bucket.dims[0] + 1)), 8)
                x = np.where(rng.random(shape) < selected, rng.random(shape, np.float32) + 1, np.float32(0))
                batch = Batch(bucket, (request_of(spec, x.astype(np.float32), dims=shape[:1]),), 1)
                in_flight.append((batch, lane.enqueue(batch)))
                if len(in_flight) == LANE_DEPTH:
                    older, ticket = in_flight.pop(0)
                    assert_right("select", older, lane.sync(ticket).outputs)
        for batch, ticket in in_flight:
            assert_right("select", batch, lane.sync(ticket).outputs)
        figures = lane.figures()
        assert {miss.reason for miss in figures.graph_misses.values()} == {MissReason.DATA_DEPENDENT}
        assert set(figures.graph_misses) == set(spec.buckets.known())
        lane.close()

    def test_an_input_whose_values_the_profile_fixes(self, bench: TrtBench) -> None:
        if not bench.flavour.capabilities.profile_values:
            with pytest.raises(ModelLoadFailed, match="does not tell which ones its profiles fix"):
                bench.open("reshape")
            return
        backend = bench.open("reshape")
        spec, lane = backend.spec, bench.lane(backend)
        assert [tensor.name for tensor in spec.inputs] == ["x"]
        rng = np.random.default_rng(22)
        for _ in range(LANE_DEPTH + 1):
            batch = Batch(Bucket(1), (request_of(spec, rng.random((4, 8), np.float32)),), 1)
            assert_right("reshape", batch, lane.sync(lane.enqueue(batch)).outputs)

    def test_lanes_do_not_mix(self, bench: TrtBench) -> None:
        backend = bench.open("pair")
        lanes = [bench.lane(backend) for _ in range(3)]
        rng = np.random.default_rng(3)
        batches = [batch_in(backend.spec, Bucket(4), rng, (1, 2, 1)) for _ in lanes]
        tickets = [lane.enqueue(batch) for lane, batch in zip(lanes, batches, strict=True)]
        for lane, batch, ticket in zip(lanes, batches, tickets, strict=True):
            assert_right("pair", batch, lane.sync(ticket).outputs)

    def test_a_request_gets_the_outputs_it_asked_for_in_memory_of_its_own(self, bench: TrtBench) -> None:
        backend = bench.open("pair")
        lane = bench.lane(backend)
        rng = np.random.default_rng(4)
        batch = batch_in(backend.spec, Bucket(2), rng, (2,))
        (first,) = lane.sync(lane.enqueue(batch)).outputs
        kept = first[1].copy()
        for _ in range(LANE_DEPTH):
            lane.sync(lane.enqueue(batch_in(backend.spec, Bucket(2), rng, (2,))))
        np.testing.assert_array_equal(first[1], kept)

    def test_moments_are_in_order(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        lane = bench.lane(backend)
        rng = np.random.default_rng(5)
        tickets = [lane.enqueue(batch_in(backend.spec, Bucket(8), rng, (8,))) for _ in range(LANE_DEPTH)]
        for ticket in tickets:
            timings = lane.sync(ticket).timings
            assert timings.started <= timings.copied_in <= timings.computed <= timings.copied_out

    def test_a_third_batch_is_refused_and_hurts_nobody(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        lane = bench.lane(backend)
        rng = np.random.default_rng(6)
        batches = [batch_in(backend.spec, Bucket(4), rng, (3,)) for _ in range(3)]
        tickets = [lane.enqueue(batch) for batch in batches[:LANE_DEPTH]]
        with pytest.raises(ExecutionFailed, match="holds 2 batches already"):
            lane.enqueue(batches[2])
        for batch, ticket in zip(batches, tickets, strict=False):
            assert_right("double", batch, lane.sync(ticket).outputs)
        assert_right("double", batches[2], lane.sync(lane.enqueue(batches[2])).outputs)

    def test_a_bucket_outside_every_profile_is_refused_with_the_ranges(self, bench: TrtBench) -> None:
        with pytest.raises(ModelLoadFailed, match=r"buckets 16 .*profile 0: x 1x8 to 8x8"):
            bench.open("double", bucket_sizes={"batch": (8, 16)})

    def test_buckets_come_from_the_profiles(self, bench: TrtBench) -> None:
        assert bench.open("double").spec.buckets.batch_sizes == (1, 2, 4, 8)
        assert bench.open("double").spec.platform == "tensorrt_plan"

    def test_closing_frees_everything(self, bench: TrtBench) -> None:
        before = bench.cuda.live
        backend = bench.open("sequence")
        lane = bench.lane(backend)
        assert bench.cuda.live.graphs == before.graphs + LANE_DEPTH * len(tuple(backend.spec.buckets.known()))
        assert lane.figures().device_bytes[MemoryOwner.BUFFERS] > 0
        lane.close()
        lane.close()
        assert lane.figures().device_bytes == {}
        backend.close()
        backend.close()
        assert bench.cuda.live == before == LiveCounts()

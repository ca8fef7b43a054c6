"""What timing a bucket's layers promises, as tests that run on the fake device and, unchanged, on a real GPU."""

from __future__ import annotations

import numpy as np
import pytest

from service.diagnosis.layers import classify
from service.layers.figures import layer_profile
from service.layers.profile import trace_bucket
from tests.doubles.trt_models import TrtBench, assert_right, batch_in

RUNS = 5


class LayerCases:
    """Needs a fixture `bench: TrtBench`."""

    @pytest.mark.parametrize("name", ["double", "pair", "sequence"])
    def test_every_bucket_s_layers_under_the_graph_s_replay(self, bench: TrtBench, name: str) -> None:
        backend = bench.open(name)
        before = bench.cuda.live
        for bucket in backend.spec.buckets.known():
            trace = trace_bucket(backend, bucket, runs=RUNS)
            assert trace.is_replayed
            assert trace.layers
            assert all(len(layer.times_s) == RUNS for layer in trace.layers)
            assert trace.span_s > 0
        assert bench.cuda.live == before

    def test_layers_have_the_bucket_s_shapes(self, bench: TrtBench) -> None:
        if not bench.flavour.capabilities.inspector:
            pytest.skip("this TensorRT has no inspector")
        backend = bench.open("sequence")
        for bucket in backend.spec.buckets.known():
            shape = (bucket.padded_size, *bucket.dims)
            operands = [
                operand.dims
                for layer in trace_bucket(backend, bucket, runs=1).layers
                for operand in (*layer.operation.inputs, *layer.operation.outputs)
            ]
            assert shape in operands

    def test_scaled_layers_add_up_to_the_span(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        bucket = next(iter(backend.spec.buckets.known()))
        trace = trace_bucket(backend, bucket, runs=RUNS)
        table = classify(layer_profile(bucket, trace), None)
        assert sum(layer.time_s for layer in table.layers) == pytest.approx(trace.span_s)

    def test_a_lane_beside_it_goes_on_serving(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        lane = bench.lane(backend)
        rng = np.random.default_rng(3)
        for bucket in backend.spec.buckets.known():
            batch = batch_in(backend.spec, bucket, rng, (bucket.padded_size,))
            ticket = lane.enqueue(batch)
            trace_bucket(backend, bucket, runs=1)
            assert_right("double", batch, lane.sync(ticket).outputs)

"""Layers of a bucket of media are those of its engine; the kernels of the task have no part in them."""

from __future__ import annotations

import pytest

from service.buckets import Bucket, Form
from service.layers.profile import trace_bucket
from service.runtime.cuda.graph import Graph
from service.runtime.trt.chain import Chain
from tests.service.runtime.trt.media.conftest import MakeMediaBench

RUNS = 2


def test_the_engine_alone_is_timed(make_media_bench: MakeMediaBench) -> None:
    bench = make_media_bench("10")
    backend = bench.open("seer")
    bucket = next(each for each in backend.spec.buckets.known() if each.form is Form.MEDIA)
    before = bench.cuda.live
    media = trace_bucket(backend, bucket, runs=RUNS)
    tensors = trace_bucket(backend, Bucket(bucket.padded_size, bucket.dims), runs=RUNS)
    assert [layer.operation for layer in media.layers] == [layer.operation for layer in tensors.layers]
    assert media.is_replayed
    assert bench.cuda.live == before


def test_the_graph_with_the_task_s_kernels_is_not_replayed(
    make_media_bench: MakeMediaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make_media_bench("10").open("seer")
    bucket = next(each for each in backend.spec.buckets.known() if each.form is Form.MEDIA)
    with backend.create_layer_probe(bucket) as probe:
        replayed: list[Graph | None] = []
        replay = Chain.replay

        def noted(chain: Chain) -> None:
            replayed.append(chain.graph)
            replay(chain)

        monkeypatch.setattr(Chain, "replay", noted)
        whole = probe._chain.graph
        probe.layers(RUNS)
    assert whole is not None
    assert replayed
    assert whole not in replayed

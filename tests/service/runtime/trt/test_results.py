"""Outputs leave pinned memory the same way, whoever copies them."""

from __future__ import annotations

import numpy as np
import pytest

from service.buckets import Bucket, BucketTable
from service.cards import ModelCard
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.rows import output_plans, scatter
from service.runtime.trt.copy_threads import PARALLEL_FROM_BYTES, CopyThreads
from service.runtime.trt.results import take_results
from service.tensors import DType, TensorSpec
from tests.doubles.onnx_batches import request_of

WIDTH = PARALLEL_FROM_BYTES // 16
SPEC = ModelSpec(
    name="m",
    version="1",
    platform="tensorrt_plan",
    inputs=(TensorSpec("x", DType.FP32, ("batch", "n")),),
    outputs=(TensorSpec("y", DType.FP32, ("batch", "n")), TensorSpec("scalar", DType.FP32, ())),
    has_batch_dim=True,
    buckets=BucketTable((8,), ("n",), ((WIDTH,),)),
    card=ModelCard(name="m"),
)


@pytest.mark.parametrize("helpers", [0, 3])
@pytest.mark.parametrize("width", [WIDTH, 4])
@pytest.mark.parametrize("outputs", [(0,), (0, 1), (1,)])
def test_as_by_one_thread(helpers: int, width: int, outputs: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    host_outputs = (rng.random((8, width), np.float32), np.float32(3) + np.zeros((), np.float32))
    dims = (width - 1,)
    requests = tuple(
        request_of(SPEC, np.zeros((rows, width - 1), np.float32), dims=dims, outputs=outputs) for rows in (1, 4, 2)
    )
    batch = Batch(Bucket(8, (width,)), requests, 7)
    threads = CopyThreads(helpers)
    got = take_results(batch, output_plans(SPEC), host_outputs, threads)
    threads.close()
    wanted = scatter(batch, output_plans(SPEC), host_outputs)
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.flags.c_contiguous
            assert not any(np.shares_memory(one, host) for host in host_outputs)

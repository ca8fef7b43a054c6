"""Large requests that fill their bucket run where they lie; everything else is copied; the answers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from service.buckets import Bucket
from service.cards import BatchingCard, ModelCard
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.onnx.in_place import fits_in_place
from service.runtime.onnx.lane import OnnxLane
from service.runtime.warm_up import warm_up
from service.tensors import HOST_ALIGNMENT_BYTES, IN_PLACE_FROM_BYTES, HostArray
from tests.doubles import onnx_models
from tests.doubles.onnx_batches import batch_of, request_of

WIDTH = IN_PLACE_FROM_BYTES // 4


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[ModelSpec, OnnxLane]]:
    path = onnx_models.make_identity(tmp_path / "m.onnx", dims=("batch", WIDTH))
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=4))
    backend = OnnxBackend.open(card, version="1", model_path=path, cpu_threads=1)
    lane = backend.create_lane(0)
    warm_up(lane, backend.spec, lambda bucket: None)
    yield backend.spec, lane
    lane.close()
    backend.close()


def aligned(rows: int, *, width: int = WIDTH, offset: int = 0, value: float = 1.0) -> HostArray:
    """FP32[rows, width], whose address is `offset` beyond a multiple of the alignment."""
    host = np.empty(rows * width * 4 + 2 * HOST_ALIGNMENT_BYTES, np.uint8)
    start = -host.ctypes.data % HOST_ALIGNMENT_BYTES + offset
    array = host[start : start + rows * width * 4].view(np.float32).reshape(rows, width)
    array[...] = value
    return array


@pytest.mark.parametrize(
    ("arrays", "fits"),
    [
        pytest.param([aligned(1)], True, id="one row"),
        pytest.param([aligned(2)], True, id="two rows fill the bucket of two"),
        pytest.param([aligned(3)], False, id="three rows leave one to pad"),
        pytest.param([aligned(1), aligned(1)], False, id="two requests"),
        pytest.param([aligned(1, offset=4)], False, id="unaligned"),
    ],
)
def test_what_fits(opened: tuple[ModelSpec, OnnxLane], arrays: list[HostArray], fits: bool) -> None:
    spec, lane = opened
    batch = batch_of(spec, *(request_of(spec, array) for array in arrays))
    assert fits_in_place(batch) is fits
    for array, (result,) in zip(arrays, lane.sync(lane.enqueue(batch)).outputs, strict=True):
        np.testing.assert_array_equal(result, array)
        assert not np.shares_memory(result, array)


def test_small_requests_are_copied(opened: tuple[ModelSpec, OnnxLane]) -> None:
    spec, _ = opened
    small = request_of(spec, aligned(1, width=16))
    assert not fits_in_place(Batch(Bucket(1), (small,), 1))


def test_results_outlive_later_batches(opened: tuple[ModelSpec, OnnxLane]) -> None:
    spec, lane = opened
    results = []
    for value in (1.0, 2.0, 3.0):
        batch = batch_of(spec, request_of(spec, aligned(1, value=value)))
        results.append(lane.sync(lane.enqueue(batch)).outputs[0][0])
    assert [float(result[0, 0]) for result in results] == [1.0, 2.0, 3.0]


def test_padded_dims_are_copied(tmp_path: Path) -> None:
    """A request below its bucket's width must be padded, whatever its size and address."""
    make = partial(onnx_models.make_identity, dims=("batch", "width"), element_type=TensorProto.FLOAT)
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=1), bucket_sizes={"width": (2 * WIDTH,)})
    backend = OnnxBackend.open(card, version="1", model_path=make(tmp_path / "m.onnx"), cpu_threads=1)
    lane = backend.create_lane(0)
    warm_up(lane, backend.spec, lambda bucket: None)
    batch = batch_of(backend.spec, request_of(backend.spec, aligned(1), dims=(WIDTH,)))
    assert not fits_in_place(batch)
    assert lane.sync(lane.enqueue(batch)).outputs[0][0].shape == (1, WIDTH)
    lane.close()
    backend.close()

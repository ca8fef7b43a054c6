"""Which way every row of a large batch takes: all of it goes once, from the right place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket, BucketTable
from service.cards import ModelCard
from service.models import ModelSpec
from service.requests import Batch
from service.runtime.rows import input_plans
from service.runtime.trt.buffers import Layout
from service.runtime.trt.routes import DIRECT_FROM_BYTES, InputPlace, Round, Route, rounds, route_batch
from service.tensors import DType, HostArray, TensorSpec
from tests.doubles.onnx_batches import request_of

ROW = DIRECT_FROM_BYTES // 4
ROWS = 8
EVERYTHING: Callable[[int, int], bool] = lambda address, nbytes: True  # noqa: E731
NOTHING: Callable[[int, int], bool] = lambda address, nbytes: False  # noqa: E731


def make_spec(pad: float = 0.0) -> ModelSpec:
    """`x: FP32[batch, ROW]`, rows of `DIRECT_FROM_BYTES`, and `ids: FP32[batch, 3]`, which end askew."""
    card = ModelCard(name="m", pad_values={"x": pad, "ids": pad})
    inputs = (TensorSpec("x", DType.FP32, ("batch", ROW)), TensorSpec("ids", DType.FP32, ("batch", 3)))
    return ModelSpec(
        name="m",
        version="1",
        platform="tensorrt_plan",
        inputs=inputs,
        outputs=inputs,
        has_batch_dim=True,
        buckets=BucketTable((ROWS,)),
        card=card,
    )


def places_of(spec: ModelSpec, rows: int = ROWS) -> tuple[tuple[InputPlace, ...], np.ndarray]:
    shapes = [tensor.resolve({"batch": rows}) for tensor in spec.inputs]
    layout = Layout.of(spec.inputs, shapes)
    pinned = np.full(layout.nbytes, 0xCD, np.uint8)
    hosts = [
        np.ndarray(shape, np.float32, pinned.data, offset) for shape, offset in zip(shapes, layout.offsets, strict=True)
    ]
    return tuple(map(InputPlace.of, input_plans(spec), hosts, layout.offsets)), pinned


def batch_of_rows(spec: ModelSpec, rows: tuple[int, ...]) -> Batch:
    rng = np.random.default_rng(sum(rows))
    requests = tuple(
        request_of(spec, rng.random((count, ROW), np.float32), rng.random((count, 3), np.float32)) for count in rows
    )
    return Batch(Bucket(ROWS), requests, sum(rows))


def on_the_device(route: Route, parts: list[Round], batch: Batch, pinned: np.ndarray) -> np.ndarray:
    """What the device's buffer holds after the route; no byte may be written twice."""
    device = np.full(len(pinned), 0xEE, np.uint8)
    written = np.zeros(len(pinned), np.uint8)
    by_address = {
        values.__array_interface__["data"][0]: values for request in batch.requests for values in request.inputs
    }
    for offset, address, nbytes in route.direct:
        device[offset : offset + nbytes] = by_address[address].reshape(-1).view(np.uint8)[:nbytes]
        written[offset : offset + nbytes] += 1
    for part in parts:
        for offset, end in part.ranges:
            device[offset:end] = pinned[offset:end]
            written[offset:end] += 1
    for offset, byte, nbytes in route.fills:
        device[offset : offset + nbytes] = byte
        written[offset : offset + nbytes] += 1
    assert written.max() == 1
    return device


def joined(batch: Batch, index: int) -> HostArray:
    return np.concatenate([request.inputs[index] for request in batch.requests])


rows_strategy = st.lists(st.integers(1, ROWS), min_size=1, max_size=ROWS).filter(lambda rows: sum(rows) <= ROWS)


@given(rows_strategy, st.sampled_from([0.0, 1.5]), st.data())
def test_every_row_arrives(rows: list[int], pad: float, data: st.DataObject) -> None:
    spec = make_spec(pad)
    places, pinned = places_of(spec)
    batch = batch_of_rows(spec, tuple(rows))
    locked = {
        request.inputs[0].__array_interface__["data"][0] for request in batch.requests if data.draw(st.booleans())
    }
    route = route_batch(batch, places, lambda address, nbytes: address in locked)
    sizes = st.integers(1, 4 * DIRECT_FROM_BYTES)
    parts = list(rounds(route.work, data.draw(sizes), data.draw(sizes)))
    for part in parts:
        assert part.nbytes == sum(piece.nbytes for piece in part.pieces)
        for piece in part.pieces:
            piece.copy()
    device = on_the_device(route, parts, batch, pinned)
    for index, place in enumerate(places):
        got = device[place.offset : place.offset + place.host.nbytes].view(np.float32).reshape(place.host.shape)
        np.testing.assert_array_equal(got[: batch.size], joined(batch, index))
        np.testing.assert_array_equal(got[batch.size :], np.float32(pad))
    assert len(route.direct) == len(locked)


def test_an_ordinary_batch_is_one_copy() -> None:
    spec = make_spec()
    places, pinned = places_of(spec)
    route = route_batch(batch_of_rows(spec, (3, 5)), places, NOTHING)
    assert (route.direct, route.fills) == ([], [])
    (whole,) = rounds(route.work, len(pinned), len(pinned))
    assert whole.ranges == [(0, len(pinned))]


def test_page_locked_rows_are_read_where_they_lie_and_small_ones_gathered() -> None:
    spec = make_spec()
    places, pinned = places_of(spec)
    batch = batch_of_rows(spec, (3, 5))
    route = route_batch(batch, places, EVERYTHING)
    assert [(offset, nbytes) for offset, _, nbytes in route.direct] == [
        (0, 3 * DIRECT_FROM_BYTES),
        (3 * DIRECT_FROM_BYTES, 5 * DIRECT_FROM_BYTES),
    ]
    (small,) = rounds(route.work, len(pinned), len(pinned))
    assert small.ranges == [(places[1].offset, len(pinned))]


@pytest.mark.parametrize(
    ("pad", "byte"), [(0.0, 0), (1.5, None), (float(np.frombuffer(b"\7\7\7\7", np.float32)[0]), 7)]
)
def test_what_padding_consists_of(pad: float, byte: int | None) -> None:
    places, _ = places_of(make_spec(pad))
    assert places[0].pad_byte == byte


def test_padding_is_filled_by_whom_it_costs_least() -> None:
    batch_rows = (6,)
    filled = route_batch(batch_of_rows(make_spec(), batch_rows), places_of(make_spec())[0], NOTHING)
    assert filled.fills == [(6 * DIRECT_FROM_BYTES, 0, 2 * DIRECT_FROM_BYTES)]
    copied = route_batch(batch_of_rows(make_spec(1.5), batch_rows), places_of(make_spec(1.5))[0], NOTHING)
    assert copied.fills == []


def test_work_is_cut_between_rows() -> None:
    spec = make_spec()
    places, _ = places_of(spec)
    work = route_batch(batch_of_rows(spec, (8,)), places, NOTHING).work
    parts = list(rounds(work, 6 * DIRECT_FROM_BYTES, 3 * DIRECT_FROM_BYTES - 1))
    assert [[piece.nbytes for piece in part.pieces] for part in parts] == [
        [3 * DIRECT_FROM_BYTES, 3 * DIRECT_FROM_BYTES],
        [2 * DIRECT_FROM_BYTES, 8 * 3 * 4],
    ]


def test_an_input_without_rows_goes_as_a_whole() -> None:
    spec = ModelSpec(
        name="m",
        version="1",
        platform="tensorrt_plan",
        inputs=(TensorSpec("x", DType.FP32, (ROW, "n")),),
        outputs=(),
        has_batch_dim=False,
        buckets=BucketTable((1,), ("n",), ((2,),)),
        card=ModelCard(name="m"),
    )
    host = np.zeros((ROW, 2), np.float32)
    place = InputPlace.of(input_plans(spec)[0], host, 0)
    assert place.row_bytes == host.nbytes
    whole = Batch(Bucket(1, (2,)), (request_of(spec, np.ones((ROW, 2), np.float32), dims=(2,)),), 1)
    assert [nbytes for _, _, nbytes in route_batch(whole, (place,), EVERYTHING).direct] == [host.nbytes]
    part = Batch(Bucket(1, (2,)), (request_of(spec, np.ones((ROW, 1), np.float32), dims=(1,)),), 1)
    route = route_batch(part, (place,), EVERYTHING)
    (whole_input,) = rounds(route.work, 1, 1)
    assert whole_input.ranges == [(0, host.nbytes)]
    whole_input.pieces[0].copy()
    np.testing.assert_array_equal(host, [[1, 0]] * ROW)

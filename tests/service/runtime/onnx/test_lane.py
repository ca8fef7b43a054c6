from __future__ import annotations

import itertools
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bfloat16 import bfloat16_bits
from service.buckets import Bucket
from service.cards import BatchingCard, ModelCard
from service.errors import ExecutionFailed, InvalidInput, ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchTimings, InferenceRequest
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.onnx.lane import OnnxLane
from service.runtime.onnx.session import open_session
from service.tensors import HostArray
from tests.doubles import onnx_models
from tests.doubles.onnx_batches import batch_of, request_of

OpenLane = Callable[..., tuple[OnnxBackend, OnnxLane]]

SEQUENCE_BUCKETS = (4, 8)


def run(lane: OnnxLane, spec: ModelSpec, *requests: InferenceRequest) -> tuple[tuple[HostArray, ...], ...]:
    return lane.sync(lane.enqueue(batch_of(spec, *requests))).outputs


def filled(value: float, rows: int, width: int = 16) -> HostArray:
    return np.full((rows, width), value, np.float32)


def tokens_request(spec: ModelSpec, ids: HostArray, mask: HostArray | None = None) -> InferenceRequest:
    return request_of(spec, ids, np.ones_like(ids) if mask is None else mask, dims=(ids.shape[1],))


def test_rows_return_to_their_own_request(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_simple)
    rng = np.random.default_rng(0)
    inputs = [tuple(rng.integers(-9, 9, (rows, 16), np.int32) for _ in range(2)) for rows in (2, 1)]
    results = run(lane, backend.spec, *(request_of(backend.spec, *pair) for pair in inputs))
    for (a, b), (total, difference) in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(difference, a - b)


def test_only_the_wanted_outputs(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_simple)
    ones = np.ones((1, 16), np.int32)
    first, second = (request_of(backend.spec, ones, ones, outputs=outputs) for outputs in ((1,), (0, 1)))
    results = run(lane, backend.spec, first, second)
    assert [len(arrays) for arrays in results] == [1, 2]
    assert results[0][0].tolist() == [[0] * 16]
    assert results[1][0].tolist() == [[2] * 16]


def test_results_own_their_memory(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_sequence, bucket_sizes={"sequence": SEQUENCE_BUCKETS})
    ids = np.full((1, 3), 5, np.int64)
    (result,) = run(lane, backend.spec, tokens_request(backend.spec, ids))
    before = [array.copy() for array in result]
    run(lane, backend.spec, tokens_request(backend.spec, ids + 1))
    for array, copy in zip(result, before, strict=True):
        assert array.flags.owndata
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        pytest.param(onnx_models.make_fp16, np.linspace(-2, 2, 48, dtype=np.float16).reshape(3, 16), id="fp16"),
        pytest.param(
            onnx_models.make_bf16, bfloat16_bits(np.linspace(-2, 2, 48, dtype=np.float32)).reshape(3, 16), id="bf16"
        ),
        pytest.param(onnx_models.make_bool, np.arange(48).reshape(3, 16) % 3 == 0, id="bool"),
        pytest.param(
            onnx_models.make_string,
            np.array([[b"", b"a\0b"], ["é".encode(), b"lane"], [b"\xf0\x9f\x9a\x80", b" "]], np.object_),
            id="string",
        ),
    ],
)
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_types_pass_unchanged(open_lane: OpenLane, make: Callable[[Path], Path], values: HostArray, warm: bool) -> None:
    backend, lane = open_lane(make, warm=warm)
    (result,) = run(lane, backend.spec, request_of(backend.spec, values))
    assert result[0].dtype == values.dtype
    assert result[0].flags.c_contiguous
    np.testing.assert_array_equal(result[0], values)


def test_unknown_output_dim_of_bfloat16(open_lane: OpenLane) -> None:
    """An output that ONNX Runtime allocates, in a type that NumPy lacks."""
    make = partial(onnx_models.make_bf16, dims=("batch", None))
    backend, lane = open_lane(make, bucket_sizes={"x_1": (4,)})
    values = np.arange(8, dtype=np.uint16).reshape(2, 4)
    (result,) = run(lane, backend.spec, request_of(backend.spec, values, dims=(4,)))
    np.testing.assert_array_equal(result[0], values)


def test_text_is_never_bent(open_lane: OpenLane) -> None:
    """What is not UTF-8 was refused before it was queued; a lane that meets it stops rather than run on other text."""
    backend, lane = open_lane(onnx_models.make_string)
    with pytest.raises(UnicodeDecodeError):
        run(lane, backend.spec, request_of(backend.spec, np.array([[b"\xff", b"x"]], np.object_)))


def test_stale_rows_do_not_reach_a_later_batch(open_lane: OpenLane) -> None:
    """The mean over the batch shows every row of the bucket, those past the requests' own included."""
    backend, lane = open_lane(onnx_models.make_batch_dependent)
    spec = backend.spec
    run(lane, spec, request_of(spec, filled(100, 4, width=4)))
    (result,) = run(lane, spec, request_of(spec, filled(4, 3, width=4)))
    np.testing.assert_allclose(result[0], np.full((3, 4), 4 - (3 * 4 + 0) / 4))


def test_stale_dims_do_not_reach_a_later_batch(open_lane: OpenLane) -> None:
    """The masked mean shows a mask of 1 that an earlier, wider request left in the padding."""
    backend, lane = open_lane(onnx_models.make_sequence, bucket_sizes={"sequence": SEQUENCE_BUCKETS})
    spec = backend.spec
    narrow = np.full((1, 5), 5, np.int64)
    (fresh,) = run(lane, spec, tokens_request(spec, narrow))
    run(lane, spec, tokens_request(spec, np.full((4, 8), 7, np.int64)))
    (after,) = run(lane, spec, tokens_request(spec, narrow))
    np.testing.assert_array_equal(after[1], fresh[1])
    assert after[0].shape == (1, 5, onnx_models.HIDDEN)


def test_dims_are_padded_with_the_card_values(open_lane: OpenLane) -> None:
    """Padding that the mask counts in is the mean's business: two tokens 5, two tokens 3."""
    backend, lane = open_lane(
        onnx_models.make_sequence,
        bucket_sizes={"sequence": SEQUENCE_BUCKETS},
        pad_values={"input_ids": 3, "attention_mask": 1},
    )
    spec = backend.spec
    five = np.full((1, 2), 5, np.int64)
    (padded,) = run(lane, spec, tokens_request(spec, five))
    (spelt_out,) = run(lane, spec, tokens_request(spec, np.int64([[5, 5, 3, 3]])))
    np.testing.assert_array_equal(padded[1], spelt_out[1])


def test_rows_are_padded_with_the_card_values(open_lane: OpenLane) -> None:
    """The mean over the batch reads the padding back."""
    backend, lane = open_lane(onnx_models.make_batch_dependent, pad_values={"x": 10})
    (result,) = run(lane, backend.spec, request_of(backend.spec, filled(2, 3, width=4)))
    np.testing.assert_allclose(result[0], np.full((3, 4), 2 - (3 * 2 + 10) / 4))


def test_model_without_batch(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_not_batched, max_batch_size=0)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (result,) = run(lane, backend.spec, request_of(backend.spec, x))
    np.testing.assert_array_equal(result[0], x.sum(axis=0))


def test_width_that_depends_on_data(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_data_dependent)
    for top in (3, 7, 2):
        (result,) = run(lane, backend.spec, request_of(backend.spec, filled(top, 1, width=4)))
        assert result[0].shape == (1, top)
        assert (result[0] == 1).all()


def test_a_shape_that_depends_on_values_is_not_shared(open_lane: OpenLane) -> None:
    """One request's largest value would decide how wide the other's answer is."""
    backend, lane = open_lane(onnx_models.make_data_dependent)
    first, second = (request_of(backend.spec, filled(value, 1, width=4)) for value in (1, 3))
    with pytest.raises(ExecutionFailed, match="depend on the values"):
        run(lane, backend.spec, first, second)


def test_a_dimension_that_no_input_names_is_shared_where_it_is_as_at_warm_up(open_lane: OpenLane) -> None:
    """With all values below 1 the width is 0, as it was on padding."""
    backend, lane = open_lane(onnx_models.make_data_dependent)
    small = [request_of(backend.spec, filled(0.5, 1, width=4)) for _ in range(2)]
    assert [arrays[0].shape for arrays in run(lane, backend.spec, *small)] == [(1, 0), (1, 0)]


def test_output_whose_rows_are_not_the_batch_is_refused_at_warm_up(open_lane: OpenLane) -> None:
    _, lane = open_lane(onnx_models.make_flattening, warm=False)
    with pytest.raises(ModelLoadFailed, match=r"output 'y' .* has shape \[16\] for a batch of 4.*max_batch_size = 0"):
        lane.warm_up(Bucket(4))


def test_output_whose_rows_are_not_the_batch_fails_a_cold_batch(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_flattening, warm=False)
    with pytest.raises(ExecutionFailed, match=r"has shape \[8\] for a batch of 2"):
        run(lane, backend.spec, request_of(backend.spec, filled(1, 2, width=4)))


def test_values_that_the_model_cannot_take_leave_the_lane_working(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_bounded_lookup)
    with pytest.raises(InvalidInput, match=r"model 'm' in bucket 1: .*indices element out of data bounds, idx=7"):
        run(lane, backend.spec, request_of(backend.spec, np.int64([7])))
    (result,) = run(lane, backend.spec, request_of(backend.spec, np.int64([2])))
    assert result[0].tolist() == [[4, 5]]


def test_a_shape_that_cannot_run_fails_at_warm_up(open_lane: OpenLane) -> None:
    _, lane = open_lane(onnx_models.make_bounded_lookup, warm=False, pad_values={"index": 9})
    with pytest.raises(ExecutionFailed, match="idx=9"):
        lane.warm_up(Bucket(4))


def test_time_stamps(tmp_path: Path) -> None:
    path = onnx_models.make_simple(tmp_path / "m.onnx")
    spec = OnnxBackend.open(ModelCard(name="m"), version="1", model_path=path, cpu_threads=1).spec
    ticks = itertools.count(100)
    lane = OnnxLane(open_session(path, threads=1), spec, model_path=path, clock_ns=lambda: next(ticks))
    ones = np.ones((1, 16), np.int32)
    result = lane.sync(lane.enqueue(batch_of(spec, request_of(spec, ones, ones))))
    assert result.timings == BatchTimings(started=100, copied_in=101, computed=102, copied_out=103)
    lane.close()


def traced_bytes(work: Callable[[], object]) -> tuple[int, int]:
    """Host bytes that `work` left allocated while its result lives, and the most that it held at once."""
    tracemalloc.start()
    try:
        result = work()
        current, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return current, peak


def test_a_warm_bucket_allocates_nothing_but_the_results(open_lane: OpenLane) -> None:
    width = 1 << 16
    backend, lane = open_lane(partial(onnx_models.make_identity, dims=("batch", width)))
    batch = batch_of(backend.spec, *(request_of(backend.spec, filled(row, 1, width)) for row in range(3)))
    lane.sync(lane.enqueue(batch))
    assert traced_bytes(lambda: lane.enqueue(batch))[1] < 8192
    ticket = lane.enqueue(batch)
    assert traced_bytes(lambda: lane.sync(ticket))[1] < 3 * width * 4 + 8192


def test_buckets_share_the_memory_of_the_largest(open_lane: OpenLane) -> None:
    width = 1 << 16
    make = partial(onnx_models.make_identity, dims=("batch", width))
    largest_bytes = 4 * width * 4
    assert traced_bytes(lambda: open_lane(make))[0] < 2.2 * largest_bytes


def test_exact_sizes_are_served_and_not_kept(open_lane: OpenLane) -> None:
    backend, lane = open_lane(onnx_models.make_identity_any_width)
    spec = backend.spec

    def serve_many_widths(first: int) -> None:
        for width in range(first, first + 16):
            x = filled(width, 3, width)
            (result,) = run(lane, spec, request_of(spec, x, dims=(width,)))
            np.testing.assert_array_equal(result[0], x)

    serve_many_widths(1 << 13)
    assert traced_bytes(lambda: serve_many_widths(1 << 14))[0] < 1 << 14


def test_lanes_run_side_by_side(tmp_path: Path) -> None:
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=4))
    path = onnx_models.make_cnn(tmp_path / "m.onnx")
    backend = OnnxBackend.open(card, version="1", model_path=path, cpu_threads=1)
    both_ready = threading.Barrier(2, timeout=30)
    images = np.random.default_rng(3).integers(0, 256, (2, 3, 3, 64, 64), np.uint8)
    results: dict[int, list[HostArray]] = {0: [], 1: []}

    def work(lane_id: int) -> None:
        lane = backend.create_lane(lane_id)
        for bucket in backend.spec.buckets.known():
            lane.warm_up(bucket)
        both_ready.wait()
        for _ in range(20):
            results[lane_id].append(run(lane, backend.spec, request_of(backend.spec, images[lane_id]))[0][0])
        lane.close()

    threads = [threading.Thread(target=work, args=(lane_id,)) for lane_id in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    session = open_session(path, threads=1)
    for lane_id, logits in results.items():
        assert len(logits) == 20
        (wanted,) = session.run(None, {"image": images[lane_id]})
        for got in logits:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSpec, OnnxLane]:
    path = onnx_models.make_sequence(tmp_path_factory.mktemp("encoder") / "m.onnx")
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=8), bucket_sizes={"sequence": SEQUENCE_BUCKETS})
    backend = OnnxBackend.open(card, version="1", model_path=path, cpu_threads=1)
    lane = backend.create_lane(0)
    for bucket in backend.spec.buckets.known():
        lane.warm_up(bucket)
    return backend.spec, lane


ROWS_AND_LENGTHS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), min_size=1, max_size=8).filter(
    lambda parts: sum(rows for rows, _ in parts) <= 8
)


@given(parts=ROWS_AND_LENGTHS, seed=st.integers(0, 2**32 - 1))
def test_any_mix_gives_each_request_what_it_gets_alone(
    encoder: tuple[ModelSpec, OnnxLane], parts: list[tuple[int, int]], seed: int
) -> None:
    spec, lane = encoder
    rng = np.random.default_rng(seed)
    requests = [
        tokens_request(spec, rng.integers(0, onnx_models.VOCABULARY, part), rng.integers(0, 2, part)) for part in parts
    ]
    together = run(lane, spec, *requests)
    for request, (tokens, embedding) in zip(requests, together, strict=True):
        ((tokens_alone, embedding_alone),) = run(lane, spec, request)
        np.testing.assert_array_equal(tokens, tokens_alone)
        np.testing.assert_allclose(embedding, embedding_alone, rtol=1e-5, atol=1e-6)
        assert tokens.shape == (request.rows, request.dims[0], onnx_models.HIDDEN)


def test_full_batch_is_the_model_itself(open_lane: OpenLane, tmp_path: Path) -> None:
    backend, lane = open_lane(onnx_models.make_cnn)
    images = np.random.default_rng(4).integers(0, 256, (4, 3, 64, 64), np.uint8)
    requests = tuple(request_of(backend.spec, images[row : row + 1]) for row in range(4))
    result = lane.sync(lane.enqueue(Batch(Bucket(4), requests, 4)))
    (wanted,) = open_session(tmp_path / "model.onnx", threads=1).run(None, {"image": images})
    np.testing.assert_allclose(np.concatenate([arrays[0] for arrays in result.outputs]), wanted, rtol=1e-5, atol=1e-6)

"""`classify`, `embed`, `pad` and `layernorm` against their references, emulated and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import reference
from kernels.classify import prepare_classify
from kernels.embed import prepare_embed
from kernels.layernorm import LayerNormWeights, prepare_layernorm
from kernels.pad import prepare_pad
from kernels.session import DeviceSession
from service.tensors import DType
from tests.gpu.kernel_cases import device_session  # noqa: F401 - a fixture

FLOATS = pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])


def random(seed: int, *shape: int, dtype: DType = DType.FP32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype.numpy)


def classified(session: DeviceSession, scores: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    best = session.empty(DType.FP32, len(scores), top_k)
    indices = session.empty(DType.INT32, len(scores), top_k)
    session.run(prepare_classify(session.kernels, session.upload(scores), best, indices, stream=session.stream))
    return session.download(best), session.download(indices)


@FLOATS
@pytest.mark.parametrize("classes", [1, 2, 31, 257, 1000, 21841])
@pytest.mark.parametrize("top_k", [1, 5])
def test_classify(session, dtype, classes, top_k) -> None:
    top_k = min(top_k, classes)
    scores = random(classes, 3, classes, dtype=dtype) * dtype.numpy.type(8)
    best, indices = classified(session, scores, top_k)
    expected, order = reference.classify(scores.astype(np.float32), top_k)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(best, expected, rtol=2e-5, atol=1e-9)


@FLOATS
def test_classify_keeps_probabilities(session, dtype) -> None:
    probabilities = np.array([[0.5, 0.0, 0.25, 0.25], [1, 0, 0, 0]], dtype.numpy)
    best, indices = classified(session, probabilities, 4)
    np.testing.assert_array_equal(best, [[0.5, 0.25, 0.25, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(indices, [[0, 2, 3, 1], [0, 1, 2, 3]])


@FLOATS
def test_classify_every_class_of_equal_scores(session, dtype) -> None:
    best, indices = classified(session, np.array([[-2, 3, -2, 3, 3]], dtype.numpy), 5)
    np.testing.assert_array_equal(indices, [[1, 3, 4, 0, 2]])
    assert best.sum() == pytest.approx(1, abs=1e-6)


@FLOATS
def test_classify_tells_rows_that_are_no_numbers(session, dtype) -> None:
    nan, infinity = np.nan, np.inf
    scores = np.array(
        [[1, nan, 2], [nan, nan, nan], [1, infinity, 2], [-infinity] * 3, [1, -infinity, 2], [1, 0, 5]], dtype.numpy
    )
    best, indices = classified(session, scores, 3)
    expected, order = reference.classify(scores.astype(np.float32), 3)
    assert np.isnan(best[:4]).all()
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(best, expected, rtol=2e-5)


@FLOATS
@pytest.mark.parametrize("is_normalized", [False, True])
@pytest.mark.parametrize(("size", "tokens", "width"), [(1, 1, 1), (2, 3, 31), (3, 17, 384), (2, 130, 65), (2, 40, 520)])
def test_embed(session, dtype, is_normalized, size, tokens, width) -> None:
    hidden = random(width, size, tokens, width, dtype=dtype)
    mask = np.random.default_rng(1).integers(0, 2, (size, tokens)).astype(np.int32)
    mask[0] = 7  # every token counts, once
    hidden[mask == 0] = np.nan
    vectors = session.empty(DType.FP32, size, width)
    inputs = session.upload(hidden), session.upload(mask)
    session.run(prepare_embed(session.kernels, *inputs, vectors, is_normalized=is_normalized, stream=session.stream))
    expected = reference.embed(hidden.astype(np.float32), mask, is_normalized=is_normalized)
    np.testing.assert_allclose(session.download(vectors), expected, rtol=1e-5, atol=2e-6)


def test_embed_without_tokens_is_zeros(session) -> None:
    hidden, mask = session.upload(np.full((1, 4, 5), np.nan, np.float32)), session.upload(np.zeros((1, 4), np.int32))
    vectors = session.empty(DType.FP32, 1, 5)
    session.run(prepare_embed(session.kernels, hidden, mask, vectors, is_normalized=True, stream=session.stream))
    np.testing.assert_array_equal(session.download(vectors), np.zeros((1, 5), np.float32))


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("width", [1, 7, 129])
def test_pad_by_one_graph(session, dtype, width) -> None:
    tokens = np.arange(100, 300).astype(dtype.numpy)
    device_tokens = session.upload(tokens)
    starts = session.upload(np.zeros(5, np.int32))
    batch = session.empty(dtype, 4, width), session.empty(dtype, 4, width)
    launch = prepare_pad(session.kernels, device_tokens, starts, batch, pad_token=-3, stream=session.stream)
    with session.capture(launch) as graph:
        for lengths in ([0, 0, 0, 0], [1, 0, 130, 5], [200, 0, 0, 0], [7, 8, 6, 1]):
            host_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            session.rewrite(starts, host_starts)
            graph.launch(stream=session.stream)
            expected = reference.pad(tokens, host_starts, width, -3)
            np.testing.assert_array_equal([session.download(tensor) for tensor in batch], expected)


def test_pad_reads_nothing_outside(session) -> None:
    tokens, starts = np.arange(4, dtype=np.int32), np.array([-9, 2, 1 << 30, 3], np.int32)
    batch = session.empty(DType.INT32, 3, 4), session.empty(DType.INT32, 3, 4)
    inputs = session.upload(tokens), session.upload(starts)
    session.run(prepare_pad(session.kernels, *inputs, batch, pad_token=0, stream=session.stream))
    np.testing.assert_array_equal(session.download(batch[0]), [[0, 1, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(session.download(batch[1]), [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])


@FLOATS
@pytest.mark.parametrize(("rows", "width"), [(1, 8), (3, 768), (2, 8192), (5, 1000)])
def test_layernorm(session, dtype, rows, width) -> None:
    x, residual = random(1, rows, width, dtype=dtype) + 50, random(2, rows, width, dtype=dtype)
    gamma, beta = random(3, width, dtype=dtype), random(4, width, dtype=dtype)
    x = x.astype(dtype.numpy)
    out = session.empty(dtype, rows, width)
    weights = LayerNormWeights(session.upload(gamma), session.upload(beta), 1e-5)
    inputs = session.upload(x), session.upload(residual)
    session.run(prepare_layernorm(session.kernels, *inputs, weights, out, stream=session.stream))
    expected = reference.layernorm(*(array.astype(np.float32) for array in (x, residual, gamma, beta)), 1e-5)
    tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype is DType.FP16 else {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(session.download(out).astype(np.float32), expected, **tolerance)


def test_layernorm_in_place(session) -> None:
    x, residual, ones = random(1, 4, 64), random(2, 4, 64), np.ones(64, np.float32)
    rows = session.upload(x)
    weights = LayerNormWeights(session.upload(ones), session.upload(ones), 1e-5)
    session.run(
        prepare_layernorm(session.kernels, rows, session.upload(residual), weights, rows, stream=session.stream)
    )
    expected = reference.layernorm(x, residual, ones, ones, 1e-5)
    np.testing.assert_allclose(session.download(rows), expected, rtol=1e-5, atol=1e-5)

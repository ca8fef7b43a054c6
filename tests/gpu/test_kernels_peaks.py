"""The kernels that measure a device compute what they say: a ceiling of wrong results would be none."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.peaks import Gemm, prepare_copy, prepare_fma, prepare_gemm
from service.tensors import DType
from tests.gpu.kernel_cases import device_session  # noqa: F401 - a fixture


def halves(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


@pytest.mark.parametrize("nbytes", [16, 16 * 1024, 16 * 1025, 16 * 4099])
def test_copy(session, nbytes) -> None:
    source = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    target = session.empty(DType.UINT8, nbytes)
    session.run(prepare_copy(session.kernels, session.upload(source), target, stream=session.stream))
    np.testing.assert_array_equal(session.download(target), source)


def test_fma(session) -> None:
    out = session.empty(DType.FP32, 512)
    session.run(prepare_fma(session.kernels, out, 3, stream=session.stream))
    chains = (np.arange(512) % 256)[:, None] + np.arange(8)
    np.testing.assert_allclose(session.download(out), (chains / 8 + 1.75).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("how", "rows", "columns", "depth"),
    [
        (Gemm.NAIVE, 16, 32, 16),
        (Gemm.NAIVE, 48, 96, 80),
        (Gemm.TILED, 128, 256, 32),
        (Gemm.TILED, 128, 256, 64),
        (Gemm.TILED, 256, 512, 160),
        (Gemm.TILED, 1152, 256, 32),
        (Gemm.WGMMA, 128, 256, 64),
        (Gemm.WGMMA, 256, 512, 640),
        (Gemm.WGMMA, 1152, 256, 128),
    ],
)
def test_gemm(session, how, rows, columns, depth) -> None:
    if how is Gemm.WGMMA and not session.kernels.has("gemm_wgmma"):
        pytest.skip("made for compute capability 9.0 alone")
    left, right = halves(1, rows, depth), halves(2, columns, depth)
    out = session.empty(DType.FP16, rows, columns)
    operands = session.upload(left), session.upload(right)
    session.run(prepare_gemm(session.kernels, *operands, out, how=how, stream=session.stream))
    expected = left.astype(np.float32) @ right.astype(np.float32).T
    np.testing.assert_allclose(session.download(out).astype(np.float32), expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("how", [how for how in Gemm if how is not Gemm.NAIVE])
def test_gemm_with_more_tiles_than_run_at_once(session, how) -> None:
    """Whole numbers, so that sums are exact in any order; on the emulated device a smaller product is enough."""
    if how is Gemm.WGMMA and not session.kernels.has("gemm_wgmma"):
        pytest.skip("made for compute capability 9.0 alone")
    side = 512 if session.cuda.device_name(0) == "Fake GPU" else 8192
    rng = np.random.default_rng(side)
    left, right = (rng.integers(-1, 2, (side, 128)).astype(np.float16) for _ in range(2))
    out = session.empty(DType.FP16, side, side)
    operands = session.upload(left), session.upload(right)
    session.run(prepare_gemm(session.kernels, *operands, out, how=how, stream=session.stream))
    np.testing.assert_array_equal(session.download(out), left.astype(np.float32) @ right.astype(np.float32).T)
